"""The project at another revision: its files come out of git's objects into a folder that goes away."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator

from cachelint.cli._status import UsageProblem

_SUFFIXES = (".py", ".pyi", ".ipynb")
_CONFIGURATION = ("pyproject.toml", "cachelint.toml", ".cachelint.toml", ".gitignore", ".ignore")
_PLAIN_FILES = ("100644", "100755")


@contextlib.contextmanager
def tree(rev: str) -> Iterator[str]:
    """The working directory as it was at a revision, in a copy of the repository that lasts as long as the block.

    Only Python files, notebooks and configuration are laid out; ``.gitattributes`` play no part, as they would with
    ``git archive``. Raises UsageProblem when there is no repository, no such revision, or no git.
    """
    prefix = os.fsdecode(_git("rev-parse", "--show-prefix")).removesuffix("\n")
    try:
        commit = os.fsdecode(_git("rev-parse", "--verify", "--end-of-options", f"{rev}^{{commit}}")).strip()
    except UsageProblem as error:
        raise UsageProblem(f"--since: there is no revision {rev!r}") from error
    listing = os.fsdecode(_git("ls-tree", "-r", "-z", "--full-tree", commit))
    blobs = []
    for entry in filter(None, listing.split("\0")):
        facts, _, name = entry.partition("\t")
        mode, _, blob = facts.split(" ")
        if mode in _PLAIN_FILES and (name.endswith(_SUFFIXES) or os.path.basename(name) in _CONFIGURATION):
            blobs.append((blob, name))
    with tempfile.TemporaryDirectory(prefix="cachelint-since-") as folder:
        # The mark of a repository's root: imports resolve from there, as they do in the real one.
        os.makedirs(os.path.join(folder, ".git"))
        os.makedirs(os.path.join(folder, prefix), exist_ok=True)
        _lay(blobs, folder)
        yield os.path.join(folder, prefix).rstrip(os.sep)


def _git(*arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise UsageProblem("--since needs git, which is not installed") from error
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageProblem(f"--since: git says: {words[0].removeprefix('fatal: ') if words else 'nothing'}")
    return done.stdout


def _lay(blobs: list[tuple[str, str]], folder: str) -> None:
    """Write blobs to their names below a folder, all of them through one git process."""
    with subprocess.Popen(["git", "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for blob, name in blobs:
            process.stdin.write(blob.encode() + b"\n")
            process.stdin.flush()
            head = process.stdout.readline().split()
            if len(head) != 3:
                raise UsageProblem(f"--since: git has no content for {name}: the clone is not complete")
            content = process.stdout.read(int(head[2]))
            process.stdout.read(1)
            path = os.path.join(folder, *name.split("/"))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
        process.stdin.close()
