"""The status of an NVMe completion in words (NVM Express base specification, "Status Field Definition")."""

from __future__ import annotations

_DO_NOT_RETRY = 0x4000

_TYPES = {
    0: "generic command status",
    1: "command specific status",
    2: "media and data integrity error",
    3: "path related status",
    7: "vendor specific status",
}

_CODES = {
    (0, 0x01): "invalid command opcode",
    (0, 0x02): "invalid field in command",
    (0, 0x03): "command ID conflict",
    (0, 0x04): "data transfer error",
    (0, 0x05): "commands aborted due to power loss notification",
    (0, 0x06): "internal error",
    (0, 0x07): "command abort requested",
    (0, 0x08): "command aborted due to SQ deletion",
    (0, 0x0B): "invalid namespace or format",
    (0, 0x0C): "command sequence error",
    (0, 0x13): "PRP offset invalid",
    (0, 0x15): "operation denied",
    (0, 0x1C): "sanitize failed",
    (0, 0x1D): "sanitize in progress",
    (0, 0x20): "namespace is write protected",
    (0, 0x21): "command interrupted",
    (0, 0x22): "transient transport error",
    (0, 0x80): "LBA out of range",
    (0, 0x81): "capacity exceeded",
    (0, 0x82): "namespace not ready",
    (0, 0x83): "reservation conflict",
    (0, 0x84): "format in progress",
    (1, 0x80): "conflicting attributes",
    (1, 0x81): "invalid protection information",
    (1, 0x82): "attempted write to read only range",
    (1, 0x83): "command size limit exceeded",
    (2, 0x80): "write fault",
    (2, 0x81): "unrecovered read error",
    (2, 0x82): "end-to-end guard check error",
    (2, 0x83): "end-to-end application tag check error",
    (2, 0x84): "end-to-end reference tag check error",
    (2, 0x85): "compare failure",
    (2, 0x86): "access denied",
    (2, 0x87): "deallocated or unwritten logical block",
    (3, 0x00): "internal path error",
    (3, 0x01): "asymmetric access persistent loss",
    (3, 0x02): "asymmetric access inaccessible",
    (3, 0x03): "asymmetric access transition",
    (3, 0x60): "controller pathing error",
    (3, 0x70): "host pathing error",
    (3, 0x71): "command aborted by host",
}


def describe(status: int) -> str:
    """`status` as the kernel hands it on: bits 10:8 the status code type, 7:0 the code, 14 do not retry."""
    code_type, code = status >> 8 & 0x7, status & 0xFF
    kind = _TYPES.get(code_type, "reserved status")
    words = _CODES.get((code_type, code))
    retry = "the device says not to retry" if status & _DO_NOT_RETRY else "retried in vain"
    found = f"{words}, {kind}" if words else kind
    return f"NVMe status {code_type:X}h/{code:02X}h ({found}; {retry})"
