"""What the catalogue shows is true: its proofs run, its good examples differentiate right, its examples and fixtures
get the findings that they announce."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachelint import catalogue
from cachelint.config import Configs
from cachelint.report.text import first_sentence
from cachelint.runner import Options, run

ROOT = Path(__file__).parent.parent
CHECKS = ROOT / "cachelint" / "checks"
CODES = tuple(catalogue.names())

DESIGNED = {"CL001", *(f"CL{n}" for n in (*range(101, 112), *range(201, 221), 301, 302))}

# What a rule says of wrong results, leaks and errors stands on these; CL001 claims none.
PROVED = DESIGNED - {"CL001"}


# ---- the catalogue


def test_every_rule_of_the_design_has_a_page() -> None:
    assert set(CODES) == DESIGNED


def test_only_one_rule_is_off_by_default() -> None:
    assert [rule.code for rule in catalogue.load_all() if not rule.default] == ["CL215"]


@pytest.mark.parametrize("code", CODES)
def test_the_dialects_of_a_rule_exist(code: str) -> None:
    shipped = {path.stem for path in (ROOT / "rules" / "dialects").glob("*.toml")}
    assert set(catalogue.load(code).dialects) <= shipped


@pytest.mark.parametrize("code", CODES)
def test_examples_are_modules_of_their_own(code: str) -> None:
    rule = catalogue.load(code)
    for example in (*rule.bad, *rule.good):
        tree = ast.parse(example.code)
        imported = {
            alias.asname or alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert imported <= used
        assert "torch" not in used or "torch" in imported


def test_the_first_sentences_stand_alone() -> None:
    """Reports quote the first sentence of two sections: it must be one, and must not lean on what comes before."""
    for rule in catalogue.load_all():
        for title in ("Why it matters", "What to do"):
            first = first_sentence(rule.section(title))
            assert 20 < len(first) < 260, (rule.code, title, first)
            assert first[0].isupper() or first.startswith("`"), (rule.code, title, first)
            assert not first.startswith(("This ", "That ", "So ", "It then ")), (rule.code, title)


# ---- the proofs


def proof_of(code: str) -> str:
    text = catalogue.load(code).section("Proof")
    found = re.findall(r"^```python proof\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def test_every_claim_has_a_proof() -> None:
    assert {code for code in CODES if proof_of(code)} == PROVED


@pytest.mark.parametrize("code", sorted(PROVED))
def test_proof_runs(code: str) -> None:
    pytest.importorskip("torch")
    source = proof_of(code)
    assert "assert " in source
    exec(compile(source, f"<proof of {code}>", "exec"), {"__name__": f"proof_of_{code}"})


# ---- the good examples


def good_examples() -> Iterator[Any]:
    for code in CODES:
        for number, example in enumerate(catalogue.load(code).good):
            yield pytest.param(example.code, id=f"{code}-{number}")


def arguments(function: Callable[..., Any], skip: int, torch: Any) -> Iterator[list[Any]]:
    """Arguments for ``function`` after the first ``skip`` parameters, once for each value of its flags."""
    torch.manual_seed(1)
    choices: list[list[Any]] = [[]]
    for parameter in list(inspect.signature(function).parameters.values())[skip:]:
        kind = str(parameter.annotation)
        width = 8 if parameter.name == "base" else 4  # what is added to a concatenation of two
        options: list[Any] = [torch.rand(4, width, dtype=torch.float64) + 0.1]
        if parameter.kind is parameter.VAR_POSITIONAL:
            options = [torch.rand(4, 4, dtype=torch.float64), torch.rand(4, 4, dtype=torch.float64)]
            choices = [[*choice, *options] for choice in choices]
            continue
        if "bool" in kind:
            options = [True, False]
        elif "float" in kind:
            options = [0.25]
        elif "int" in kind:
            options = [1]
        elif parameter.default is None:
            options.append(None)
        choices = [[*choice, option] for choice in choices for option in options]
    yield from choices


def check_function(function: Any, torch: Any) -> None:
    for values in arguments(function.forward, 1, torch):
        places = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]

        def call(*tensors: Any, values: list[Any] = values, places: list[int] = places) -> Any:
            torch.manual_seed(0)
            filled = list(values)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor * 1  # not a leaf: forward may write into it
            return function.apply(*filled)

        inputs = [values[i].requires_grad_() for i in places]
        assert torch.autograd.gradcheck(call, inputs)


def check_node(kind: Any, torch: Any) -> None:
    from cachelint.runtime import Parameter

    given = {"packed": torch.ones(4, 4, dtype=torch.int8), "scale": Parameter(torch.full((4, 1), 0.5).double())}
    node = kind(*(given[name] for name in list(inspect.signature(kind).parameters) if name in given))
    for training in (True, False):
        node.train(training)
        for inputs in arguments(node.forward, 0, torch):
            live = [value.requires_grad_() for value in inputs]
            y = node.forward(*(value * 1 for value in live))
            grad = torch.rand_like(y)
            right = torch.autograd.grad(y, live, grad)
            with torch.no_grad():
                got = node.backward(grad, *live)
            for want, have in zip(right, got, strict=True):
                torch.testing.assert_close(have, want.to(have.dtype), check_dtype=False, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("source", list(good_examples()))
def test_good_example_has_the_right_gradient(source: str) -> None:
    torch = pytest.importorskip("torch")
    from cachelint.runtime import Node

    namespace: dict[str, Any] = {"__name__": "example"}
    torch.set_default_dtype(torch.float64)
    try:
        exec(compile(source, "<example>", "exec"), namespace)
    finally:
        torch.set_default_dtype(torch.float32)
    for value in namespace.values():
        if isinstance(value, type) and value.__module__ == "example":
            if issubclass(value, torch.autograd.Function):
                check_function(value, torch)
            elif issubclass(value, Node):
                check_node(value, torch)


# ---- findings


def implemented(code: str) -> bool:
    """Whether the rule's check, or what CL001 speaks of, is there to be tested."""
    wanted = "cl101" if code == "CL001" else code.lower()
    return any(CHECKS.glob(f"{wanted}_*.py"))


def findings(folder: Path, code: str) -> list[tuple[str, int]]:
    """Code and line of every finding in ``folder``, with ``code`` selected even if it is off by default."""
    configs = Configs(str(folder), {"extend-select": [code]} if code == "CL215" else {}, isolated=True)
    report = run([str(folder)], configs, Options(jobs=1, use_cache=False), cwd=str(folder))
    assert not report.errors
    return [(finding.code, finding.line) for finding in report.findings]


def examples(kind: str) -> Iterator[Any]:
    for code in CODES:
        for number, example in enumerate(getattr(catalogue.load(code), kind)):
            yield pytest.param(code, example, id=f"{code}-{number}")


@pytest.mark.parametrize(("code", "example"), list(examples("bad")))
def test_bad_example_is_reported_and_nothing_else(code: str, example: catalogue.Example, tmp_path: Path) -> None:
    if not implemented(code):
        pytest.skip("no check yet")
    (tmp_path / "example.py").write_text(example.code, encoding="utf-8")
    assert Counter(found for found, _ in findings(tmp_path, code)) == {code: example.findings}


@pytest.mark.parametrize(("code", "example"), list(examples("good")))
def test_good_example_is_not_reported(code: str, example: catalogue.Example, tmp_path: Path) -> None:
    if not implemented(code):
        pytest.skip("no check yet")
    (tmp_path / "example.py").write_text(example.code, encoding="utf-8")
    assert findings(tmp_path, code) == []


def expectations(source: str) -> list[tuple[str, range]]:
    """What the comments of a fixture announce: a code, and the lines among which one finding must be."""
    spans: dict[int, int] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            spans[node.lineno] = node.end_lineno or node.lineno
    announced = []
    for number, line in enumerate(source.splitlines(), start=1):
        match = re.search(r"# expect: (CL\d+(?:, CL\d+)*)$", line)
        if match:
            last = spans.get(number, number)
            announced += [(code, range(number, last + 1)) for code in match[1].split(", ")]
    return announced


@pytest.mark.parametrize("code", CODES)
def test_fixture_announces_its_own_rule_and_has_good_code_beside(code: str) -> None:
    source = (ROOT / "fixtures" / "cases" / f"{code}.py").read_text(encoding="utf-8")
    announced = expectations(source)
    assert code in {found for found, _ in announced}
    lines = {line for _, span in announced for line in span}
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert any(lines.isdisjoint(range(node.lineno, (node.end_lineno or 0) + 1)) for node in classes)
    assert catalogue.names()[code] in source.splitlines()[0]


@pytest.mark.parametrize("code", CODES)
def test_fixture_gets_the_findings_that_it_announces(code: str, tmp_path: Path) -> None:
    source = (ROOT / "fixtures" / "cases" / f"{code}.py").read_text(encoding="utf-8")
    announced = expectations(source)
    if not all(implemented(found) for found, _ in announced):
        pytest.skip("no check yet")
    (tmp_path / "fixture.py").write_text(source, encoding="utf-8")
    left = findings(tmp_path, code)
    for wanted, span in announced:
        hit = next((found for found in left if found[0] == wanted and found[1] in span), None)
        assert hit is not None, f"no {wanted} in lines {span.start} to {span.stop - 1}; left are {left}"
        left.remove(hit)
    assert left == []
