"""Tests of unreadable files, also where they run as root."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Drop root's power to read everything. Nothing new should be imported inside."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that everybody may enter (pytest's own are private)."""
    folder = Path(tempfile.mkdtemp()).resolve()
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        for path, names, _ in os.walk(folder):
            for name in names:
                os.chmod(os.path.join(path, name), 0o755)
        shutil.rmtree(folder)
