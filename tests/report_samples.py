"""Hand-built runs for the report tests: small, with every kind of row and every awkward character."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cachelint.model import (
    Applicability,
    Confidence,
    Evidence,
    FieldClass,
    FieldReport,
    FileError,
    Finding,
    FixNote,
    Origin,
    Storage,
    TypeReport,
)

SOURCE = """\
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        y = kernels.exp(x, scale)
        ctx.y = y
        ctx.scale = scale
        return y
"""

FIELD = FieldReport(
    field="y",
    line=5,
    column=9,
    end_line=5,
    end_column=14,
    cls=FieldClass.SAVE,
    storage=Storage.DEVICE,
    origin=Origin.OUTPUT,
    registered=False,
    read=True,
    persistent=False,
    rule="CL104",
    confidence=Confidence.HIGH,
    reason="`y` is what forward returns",
    resolution="save `y` with ctx.save_for_backward",
    evidence=(
        Evidence("kernels/exp.py", 4, "`y` is the result of `kernels.exp`, an opaque kernel"),
        Evidence("kernels/exp.py", 7, "forward returns `y`"),
    ),
)
HOST = replace(
    FIELD,
    field="scale",
    line=6,
    end_line=6,
    end_column=18,
    cls=FieldClass.SAFE,
    storage=Storage.HOST,
    origin=Origin.HOST,
    rule=None,
    reason="`scale` is a float in every call",
    resolution="nothing to do",
    evidence=(),
)
LIVE = replace(
    FIELD,
    field="last_input",
    line=12,
    end_line=12,
    cls=FieldClass.RECOMPUTE,
    origin=Origin.INPUT,
    rule="CL101",
    reason="`x` is a forward input",
    resolution="read the live input `x`",
    evidence=(),
)
KEPT = replace(LIVE, field="x", registered=True, rule=None, resolution="registered")
DEAD = replace(FIELD, field="mask", line=14, end_line=14, read=False, rule="CL201", resolution="remove it", evidence=())

EXP = TypeReport("kernels/exp.py", 1, "Exp", "torch-function", "SAFE + SAVE", (FIELD, HOST))
RELU = TypeReport("layers/relu.py", 9, "Relu", "layer", "RECOMPUTE", (LIVE, DEAD))
DONE = TypeReport("layers/done.py", 3, "Done", "torch-function", "SAFE", (KEPT,))
BLOCK = TypeReport("layers/block.py", 20, "Block", "layer", "SAVE (fan-out)", ())
EMPTY = TypeReport("layers/add.py", 1, "Add", "layer", "SAFE", ())

FINDING = Finding(
    code="CL104",
    name="cached-output",
    path="kernels/exp.py",
    line=5,
    column=9,
    end_line=5,
    end_column=14,
    message="Exp keeps `y`, its own output, on ctx",
    type="Exp",
    field="y",
    cls=FieldClass.SAVE,
    fix=FixNote(Applicability.SAFE, "save `y` with ctx.save_for_backward"),
)
LIVE_FINDING = replace(
    FINDING,
    code="CL101",
    name="cached-live-input",
    path="layers/relu.py",
    line=12,
    end_line=12,
    message="Relu keeps `x`, a live input, in self.last_input",
    type="Relu",
    field="last_input",
    cls=FieldClass.RECOMPUTE,
    fix=FixNote(Applicability.UNSAFE, "read `x` in backward"),
)
LIFETIME = replace(
    FINDING,
    code="CL301",
    name="owners-outlive-concat",
    path="layers/a b,c.py",
    line=2,
    column=1,
    end_line=3,
    end_column=2,
    message="4 tensors | 100% stay <alive>\nover the addition",
    type=None,
    field=None,
    cls=None,
    fix=None,
    names=("q", "k"),
)
ERROR = FileError("layers/broken.py", 7, "invalid syntax: expected ':'")


@dataclass(frozen=True)
class Sample:
    """A finished run made by hand."""

    files: tuple[str, ...] = ("kernels/exp.py", "layers/relu.py", "layers/done.py", "layers/block.py", "layers/add.py")
    types: tuple[TypeReport, ...] = (EXP, RELU, DONE, BLOCK, EMPTY)
    findings: tuple[Finding, ...] = (FINDING, LIVE_FINDING, LIFETIME)
    errors: tuple[FileError, ...] = (ERROR,)

    def source_lines(self, path: str) -> Sequence[str]:
        """Only one of the files is there."""
        return SOURCE.splitlines() if path == "kernels/exp.py" else []

    def cell(self, path: str, line: int) -> tuple[int, int] | None:
        """None of them is a notebook."""
        return None

    @property
    def types_with_findings(self) -> tuple[TypeReport, ...]:
        paths = {finding.path for finding in self.findings}
        return tuple(kind for kind in self.types if kind.path in paths)


CLEAN = Sample(types=(EMPTY,), findings=(), errors=())
