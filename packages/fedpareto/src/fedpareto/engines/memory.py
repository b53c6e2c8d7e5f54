"""Memory of a machine, as reported by its operating system."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

UNKNOWN = 4 * 1024**3
"""Bytes that are assumed where the system does not report them."""


def physical_memory() -> int:
    """Bytes of this machine's memory."""
    for ask in (_posix, _macos, _windows):
        found = _told(ask)
        if found > 0:
            return found
    return UNKNOWN


def _told(ask: Callable[[], int]) -> int:
    """0 where the system has no such call."""
    try:
        return ask()
    except (AttributeError, OSError, TypeError, ValueError):
        return 0


def _posix() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _macos() -> int:
    size = ctypes.c_uint64(0)
    length = ctypes.c_size_t(ctypes.sizeof(size))
    ctypes.CDLL(None).sysctlbyname(b"hw.memsize", ctypes.byref(size), ctypes.byref(length), None, ctypes.c_size_t(0))
    return size.value


def _windows() -> int:
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    return int(status.physical)


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_ulong),
        ("load", ctypes.c_ulong),
        ("physical", ctypes.c_uint64),
        ("physical_free", ctypes.c_uint64),
        ("page_file", ctypes.c_uint64),
        ("page_file_free", ctypes.c_uint64),
        ("virtual", ctypes.c_uint64),
        ("virtual_free", ctypes.c_uint64),
        ("extended_free", ctypes.c_uint64),
    )
