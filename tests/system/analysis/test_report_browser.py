"""The report in a real browser: it opens without errors, its figures show, on phones and desks, in light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.report.__main__ import main
from tests.support.analysis_results import write_sweep

BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium; install it with: sudo apt-get install chromium")

# What the page looks like from inside, told to whoever embeds it.
PROBE = """<script>
window.failures = [];
addEventListener('error', event => failures.push(event.message || 'a resource did not load'), true);
addEventListener('load', () => {
  const images = [...document.images], root = document.documentElement;
  const seen = image => image.naturalWidth > 300 && image.getBoundingClientRect().height > 100;
  const luminance = color => color.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3;
  const style = getComputedStyle(document.body);
  parent.postMessage({
    failures, images: images.length, visible: images.filter(seen).length,
    width: innerWidth, needed_width: root.scrollWidth,
    paper: luminance(style.backgroundColor), ink: luminance(style.color),
  }, '*');
});
</script>"""
FRAME = """<!DOCTYPE html><html style="color-scheme: light dark"><body>
<iframe src="probed.html" style="width: {width}px; height: 900px; border: 0"></iframe>
<script>addEventListener('message', event => {{
  const answer = document.createElement('pre');
  answer.id = 'answer';
  answer.textContent = JSON.stringify(event.data);
  document.body.append(answer);
}});</script></body></html>"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("browser")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_sweep(Path("results"), limits_gb=[2.0, 4.0, 8.0, 11.0])
        assert main([]) == 0
    page = (folder / "report" / "index.html").read_text()
    (folder / "report" / "probed.html").write_text(page.replace("<head>", f"<head>{PROBE}", 1))
    yield folder / "report"


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_the_page_opens_and_fits(report: Path, tmp_path: Path, width: int, scheme: str) -> None:
    (report / "frame.html").write_text(FRAME.format(width=width))
    seen, console = look(report / "frame.html", tmp_path, scheme)
    assert seen["failures"] == [] and "CONSOLE" not in console
    assert seen["images"] == seen["visible"] >= 3
    assert seen["width"] <= width and seen["needed_width"] <= seen["width"], "the page scrolls sideways"
    assert (seen["paper"] < seen["ink"]) == (scheme == DARK)
    assert abs(seen["paper"] - seen["ink"]) > 150


def look(page: Path, profile: Path, scheme: str) -> tuple[dict[str, Any], str]:
    """Open the page, wait for its answer, and return it with what the browser wrote."""
    assert BROWSER is not None
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1500,1000"]
    settings = [scheme, f"--user-data-dir={profile}", "--virtual-time-budget=10000", "--dump-dom"]
    command = [BROWSER, *options, *settings, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    answer = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout)
    assert answer, done.stderr[-2000:]
    return json.loads(html.unescape(answer[1])), done.stderr
