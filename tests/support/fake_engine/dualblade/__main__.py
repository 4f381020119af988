"""An engine that keeps the protocol and does what its model's `weights` say, in milliseconds instead of seconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

MIB = 1 << 20


def say(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def main() -> None:
    if "--hold" in sys.argv:
        say("ready")
        sys.stdin.read()
        return
    run_dir = Path(sys.argv[1])
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    behaviour, *arguments = (config["model"]["weights"] or "work").split(":")
    scratch = Path(config["storage"]["directory"])
    (scratch / "kv").write_bytes(bytes(MIB))
    if behaviour == "refuse":
        fail(run_dir, "the path /nowhere does not exist; give another")
    say("ready", process_bytes=0)
    if not sys.stdin.readline():
        return
    say("progress", phase="prefill", done=1, of=1)
    if behaviour == "hang":
        subprocess.Popen(["sleep", "60"])
        time.sleep(60)
    if behaviour == "crash":
        raise RuntimeError("a bug")
    if behaviour == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if behaviour == "grow":
        grown = [b"x" * MIB for _ in range(int(arguments[0]))]
        say("progress", phase="decode", done=len(grown), of=len(grown))
    if behaviour == "work":
        time.sleep(float(arguments[0]) if arguments else 0)
    (run_dir / "kv_io.parquet").write_bytes(b"PAR1")
    write(
        run_dir,
        {"status": "done", "error": None, "prefill_s": 0.5, "decode_s": [0.2, 0.1], "hit_rate": {"decode": 0.5}},
    )
    say("done")


def fail(run_dir: Path, error: str) -> None:
    write(run_dir, {"status": "failed", "error": error})
    sys.exit(1)


def write(run_dir: Path, result: dict[str, object]) -> None:
    (run_dir / "result.json").write_text(json.dumps({"schema": 1, **result}))


if __name__ == "__main__":
    main()
