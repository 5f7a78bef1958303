"""The language server, spoken to as an editor does: JSON-RPC over its standard input and output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls", reason="the extra lsp is not installed")

SOURCE = """\
import torch


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x); ctx.é = y  # 😀
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.é
"""
LINE = 6
"""0-based line of the write."""


class Editor:
    """A client that waits for what it asked for."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cachelint", "server"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.number = 0
        self.notes: list[dict[str, Any]] = []

    def send(self, method: str, params: Any, number: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        body = json.dumps(message).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        length = 0
        while (line := self.process.stdout.readline().strip()) or not length:
            assert line, "the server ended"
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return json.loads(self.process.stdout.read(length))  # type: ignore[no-any-return]

    def ask(self, method: str, params: Any) -> Any:
        self.number += 1
        self.send(method, params, self.number)
        while (message := self.receive()).get("id") != self.number or "method" in message:
            self.notes.append(message)
        assert "error" not in message, message
        return message["result"]

    def diagnostics(self) -> Any:
        while True:
            for position, note in enumerate(self.notes):
                if note.get("method") == "textDocument/publishDiagnostics":
                    return self.notes.pop(position)["params"]
            self.notes.append(self.receive())


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Editor]:
    """An editor with the folder open."""
    editor = Editor(tmp_path)
    root = tmp_path.as_uri()
    editor.ask("initialize", {"processId": None, "rootUri": root, "capabilities": {}})
    editor.send("initialized", {})
    yield editor
    editor.ask("shutdown", None)
    editor.send("exit", None)
    editor.process.wait(timeout=10)


def test_a_buffer_is_examined_as_it_stands(editor: Editor, tmp_path: Path) -> None:
    path = tmp_path / "ops.py"
    path.write_text("# the file on disk is older than the buffer\n")
    uri = path.as_uri()
    editor.send(
        "textDocument/didOpen",
        {"textDocument": {"uri": uri, "languageId": "python", "version": 1, "text": SOURCE}},
    )
    shown = editor.diagnostics()
    assert shown["uri"] == uri
    (diagnostic,) = shown["diagnostics"]
    assert (diagnostic["code"], diagnostic["source"]) == ("CL104", "cachelint")
    line = SOURCE.splitlines()[LINE]
    start = line.index("ctx.é")
    assert diagnostic["range"]["start"] == {"line": LINE, "character": start}

    hover = editor.ask(
        "textDocument/hover", {"textDocument": {"uri": uri}, "position": {"line": LINE, "character": 30}}
    )
    assert hover["contents"]["value"].startswith("**Exp.é**: SAVE, device")

    actions = editor.ask(
        "textDocument/codeAction",
        {"textDocument": {"uri": uri}, "range": diagnostic["range"], "context": {"diagnostics": [diagnostic]}},
    )
    assert [action["kind"] for action in actions] == ["quickfix"] * len(actions)
    fix = actions[0]
    (whole,) = fix["edit"]["changes"][uri]
    assert fix["isPreferred"]
    assert whole["range"] == {
        "start": {"line": 0, "character": 0},
        "end": {"line": len(SOURCE.splitlines()), "character": 0},
    }
    assert "ctx.save_for_backward(y)" in whole["newText"]
    assert "ctx.é" not in whole["newText"]
    noqa = next(action for action in actions if "noqa" in action["title"])
    (edit,) = noqa["edit"]["changes"][uri]
    assert edit["newText"] == line + "  # noqa: CL104\n"

    editor.send(
        "textDocument/didChange",
        {
            "textDocument": {"uri": uri, "version": 2},
            "contentChanges": [{"text": SOURCE.replace(line, edit["newText"].rstrip())}],
        },
    )
    assert editor.diagnostics()["diagnostics"] == []

    editor.send(
        "textDocument/didChange",
        {"textDocument": {"uri": uri, "version": 3}, "contentChanges": [{"text": "def broken(:\n"}]},
    )
    (problem,) = editor.diagnostics()["diagnostics"]
    assert problem["severity"] == 1
