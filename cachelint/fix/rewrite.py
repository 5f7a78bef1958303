"""Carry out edits with libcst: the only module that changes a tree.

Only the top-level statements that hold an edit are parsed, and they are put back between the untouched text around
them; what no edit names comes out byte for byte.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import cast

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from cachelint.fix.edits import After, Before, Claim, Edit, Extend, Replace, Require, Rewrite, Span, Text
from cachelint.fix.walker import Names, uses
from cachelint.index.chunks import split

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
Start = tuple[int, int]


class CannotRewrite(Exception):
    """An edit names a place where there is no such node, or makes text that is not Python."""


def rewrite(text: str, edits: Iterable[Edit], claims: Iterable[Claim] = ()) -> str:
    """``text`` with ``edits`` carried out. Raises CannotRewrite, also where a claim does not hold."""
    source = Text(text)
    groups = _by_chunk(source, list(edits))
    pieces, done = [], 0
    for start, end, own in groups:
        pieces += source.lines[done:start]
        held = [claim for claim in claims if start < claim.span.line <= end]
        pieces.append(_rewrite_chunk("".join(source.lines[start:end]), start, own, held))
        done = end
    pieces += source.lines[done:]
    return "".join(pieces)


def _by_chunk(source: Text, edits: list[Edit]) -> list[tuple[int, int, list[Edit]]]:
    """The line ranges (0-based, end exclusive) of the top-level statements that hold edits, with their edits."""
    starts = [chunk.start for chunk in split(source.text)] or [0]
    starts[0] = 0
    ends = [*starts[1:], len(source.lines)]
    found: dict[tuple[int, int], list[Edit]] = {}
    for edit in edits:
        place = next(((a, b) for a, b in zip(starts, ends, strict=True) if a < edit.span.line <= b), None)
        if place is None:
            raise CannotRewrite(f"line {edit.span.line} lies outside the file")
        found.setdefault(place, []).append(edit)
    return [(a, b, own) for (a, b), own in sorted(found.items())]


def _rewrite_chunk(text: str, offset: int, edits: list[Edit], claims: Sequence[Claim]) -> str:
    tail = "\r" if text.endswith("\r") else ""  # libcst loses a carriage return at the end
    try:
        module = cst.parse_module(text.removesuffix("\r"))
    except cst.ParserSyntaxError as error:
        raise CannotRewrite(f"line {offset + error.raw_line}: not understood by the rewriter") from error
    if module.code + tail != text:
        raise CannotRewrite(f"line {offset + 1}: the rewriter would not leave the text around its edits as it is")
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    positions = cast("dict[cst.CSTNode, CodeRange]", wrapper.resolve(PositionProvider))
    if claims:
        wrapper.module.visit(_Checker(positions, offset, claims))
    worker = _Rewriter(positions, offset, edits, module)
    result = wrapper.module.visit(worker)
    if worker.left:
        line = min(edit.span.line for edit in worker.left)
        raise CannotRewrite(f"line {line}: the place of an edit was not found")
    return result.code + tail


class _Checker(cst.CSTVisitor):
    """Holds the planner's reading of each function against the walker's."""

    def __init__(self, positions: dict[cst.CSTNode, CodeRange], offset: int, claims: Sequence[Claim]) -> None:
        super().__init__()
        self.positions = positions
        self.offset = offset
        self.claims: dict[Start, list[Claim]] = {}
        for claim in claims:
            self.claims.setdefault((claim.span.line, claim.span.column), []).append(claim)

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        return False

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        start = self.positions[node].start
        own = self.claims.get((start.line + self.offset, start.column))
        if own is None:
            return True
        seen = uses(node, Names(own[0].receiver), self.positions, self.offset)
        for claim in own:
            found = frozenset((p.kind, p.line, p.column) for p in seen if p.field == claim.field)
            if found != claim.places:
                lines = sorted({line for _, line, _ in found ^ claim.places})
                raise CannotRewrite(f"two readings of `{claim.receiver}.{claim.field}` disagree (line {lines[0]})")
        return False


class _Rewriter(cst.CSTTransformer):
    """Expressions are replaced as they are left; statements when the block that holds them is left."""

    def __init__(
        self, positions: dict[cst.CSTNode, CodeRange], offset: int, edits: Sequence[Edit], module: cst.Module
    ) -> None:
        super().__init__()
        self.positions = positions
        self.offset = offset
        self.module = module
        self.left = list(edits)
        self.replaced = {edit.span: edit for edit in edits if isinstance(edit, Replace)}
        self.extended: dict[Start, list[Extend | Require]] = {}
        self.beside: dict[Start, list[Rewrite | Before | After]] = {}
        for edit in edits:
            start = (edit.span.line, edit.span.column)
            if isinstance(edit, (Extend, Require)):
                self.extended.setdefault(start, []).append(edit)
            elif not isinstance(edit, Replace):
                self.beside.setdefault(start, []).append(edit)

        self.lines = sorted({edit.span.line for edit in edits})

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Statements without an edit are passed over: their trees are most of the work."""
        if isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            place = self.positions[node]
            start = place.start.line
            if isinstance(node, (cst.FunctionDef, cst.ClassDef)) and node.decorators:
                start = self.positions[node.decorators[0]].start.line  # its own place begins behind them
            first = bisect_left(self.lines, start + self.offset)
            return first < len(self.lines) and self.lines[first] <= place.end.line + self.offset
        return True

    def span(self, node: cst.CSTNode) -> Span:
        place = self.positions[node]
        return Span(place.start.line + self.offset, place.start.column, place.end.line + self.offset, place.end.column)

    def outer(self, node: cst.BaseExpression) -> Span:
        """The span with the outermost brackets: the standard library counts those of a tuple in."""
        first, last = self.positions[node.lpar[0]].start, self.positions[node.rpar[-1]].end
        return Span(first.line + self.offset, first.column, last.line + self.offset, last.column)

    # -- expressions -------------------------------------------------------------------------------------------------

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]:
        updated = super().on_leave(original_node, updated_node)
        if isinstance(original_node, cst.BaseExpression):
            place = self.span(original_node)
            edit = self.replaced.pop(place, None)
            if edit is None and self.replaced and original_node.lpar:
                edit = self.replaced.pop(self.outer(original_node), None)
            if edit is not None:
                self.left.remove(edit)
                return _replacement(edit.code, cast(cst.BaseExpression, updated), self.module)
            if self.extended and isinstance(original_node, (cst.Call, cst.Tuple, cst.List)):
                return self.extend(original_node, cast("cst.Call | cst.Tuple | cst.List", updated), place)
        elif isinstance(original_node, (cst.FunctionDef, cst.ClassDef)) and self.extended:
            place = self.span(original_node)
            for more in self.extended.pop((place.line, place.column), ()):
                self.left.remove(more)
                updated = _headed(updated, more)
        return cast(cst.CSTNode, updated)

    def extend(
        self, original: cst.CSTNode, updated: cst.Call | cst.Tuple | cst.List, place: Span
    ) -> cst.Call | cst.Tuple | cst.List:
        """Add items to the call, tuple or list at ``place``. The span of a tuple may or may not hold its brackets."""
        places = [place]
        if isinstance(original, cst.Tuple) and original.lpar:
            places.append(self.outer(original))
        for own in places:
            for edit in list(self.extended.get((own.line, own.column), ())):
                if isinstance(edit, Extend) and edit.span == own:
                    self.extended[own.line, own.column].remove(edit)
                    self.left.remove(edit)
                    for item in reversed(edit.items) if edit.front else edit.items:
                        updated = _more_items(updated, item, edit.front)
        return updated

    # -- statements --------------------------------------------------------------------------------------------------

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> cst.BaseSuite:
        """Carry out the edits of the statements in a block."""
        if not self.touches(original_node.body):
            return updated_node
        body, rest = self.block(original_node.body, updated_node.body)
        if not body:
            body = [cst.SimpleStatementLine([cst.Pass()])]
        elif isinstance(original_node.body[0], cst.BaseCompoundStatement) and self.removed(original_node.body[0]):
            # What comes first now stands where the removed one stood.
            blank = _blank_first(original_node.body[0].leading_lines)[0]
            body[0] = body[0].with_changes(leading_lines=[*blank, *_blank_first(body[0].leading_lines)[1]])
        return updated_node.with_changes(body=body, footer=[*rest, *updated_node.footer])

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        """Carry out the edits of top-level statements."""
        if not self.touches(original_node.body):
            return updated_node
        body, rest = self.block(original_node.body, updated_node.body, top=True)
        return updated_node.with_changes(body=body, footer=[*rest, *updated_node.footer])

    def leave_SimpleStatementSuite(
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> cst.BaseSuite:
        """``if x: ctx.y = y`` becomes a block when it needs one."""
        if not any(self.edits_of(small) for small in original_node.body):
            return updated_node
        pieces = self.smalls(original_node.body, updated_node.body)
        if not pieces:
            return updated_node.with_changes(body=[cst.Pass()])
        if len(pieces) == 1 and isinstance(pieces[0], cst.SimpleStatementLine):
            return updated_node.with_changes(body=pieces[0].body)
        return cst.IndentedBlock(pieces, header=updated_node.trailing_whitespace)

    def touches(self, body: Sequence[cst.CSTNode]) -> bool:
        return any(
            self.edits_of(node)
            or (isinstance(node, cst.SimpleStatementLine) and any(self.edits_of(small) for small in node.body))
            for node in body
        )

    def removed(self, node: cst.CSTNode) -> bool:
        """Whether an edit takes a compound statement away."""
        return any(isinstance(edit, Rewrite) and not edit.lines for edit in self.edits_of(node))

    def edits_of(self, node: cst.CSTNode) -> list[Rewrite | Before | After]:
        if not self.beside or isinstance(node, cst.SimpleStatementLine):
            return []
        place = self.span(node)
        return self.beside.get((place.line, place.column), [])

    def block(
        self, original: Sequence[cst.CSTNode], updated: Sequence[cst.CSTNode], top: bool = False
    ) -> tuple[list[Statement], list[cst.EmptyLine]]:
        """The statements of a block after the edits, and the comments left over behind the last one."""
        out: list[Statement] = []
        pending: list[cst.EmptyLine] = []
        for before, now in zip(original, updated, strict=True):
            statement = cast(Statement, now)
            if isinstance(before, cst.SimpleStatementLine) and any(self.edits_of(small) for small in before.body):
                line = cast(cst.SimpleStatementLine, statement)
                whole = len(before.body) == 1
                edits = self.edits_of(before.body[0])
                gone = whole and any(isinstance(e, Rewrite) and not e.lines for e in edits)
                pieces = self.smalls(before.body, line.body)
                gone |= not pieces
                comment = line.trailing_whitespace.comment
                if gone:
                    pending += line.leading_lines
                    if comment is not None and not _pragma(comment.value):
                        pending.append(cst.EmptyLine(comment=comment))
                    if not pieces:
                        continue
                else:
                    pieces = _dress(pieces, line, self.kept(before.body, edits))
                pieces[0] = _led(pieces[0], pending)
                pending = []
                out += pieces
                continue
            edits = self.edits_of(before)
            new = next((edit for edit in edits if isinstance(edit, Rewrite)), None)
            if not edits:
                out.append(_led(statement, pending))
            elif new is not None:
                self.left.remove(new)
                ahead, behind = self.around(edits)
                pieces = [*ahead, *_parse(new.lines, self.module), *behind]
                if not pieces:
                    pending += _blank_first(statement.leading_lines)[1]
                    continue
                pieces[0] = _led(pieces[0], [*pending, *statement.leading_lines])
                out += pieces
            else:
                ahead, behind = self.around(edits)
                pieces = [*ahead, statement, *behind]
                if ahead:
                    blank, rest = _blank_first(statement.leading_lines)
                    if top:  # a class or function keeps its distance
                        rest, blank = list(statement.leading_lines), blank[:1]
                    pieces[len(ahead)] = statement.with_changes(leading_lines=rest)
                    pieces[0] = _led(pieces[0], blank)
                pieces[0] = _led(pieces[0], pending)
                out += pieces
            pending = []
        return out, pending

    def kept(self, body: Sequence[cst.BaseSmallStatement], edits: Sequence[Edit]) -> int:
        """The index, among the pieces of a line, of the statement that keeps the line's comments."""
        return sum(len(_parse(e.lines, self.module)) for e in edits if isinstance(e, Before))

    def smalls(
        self, original: Sequence[cst.BaseSmallStatement], updated: Sequence[cst.BaseSmallStatement]
    ) -> list[Statement]:
        """The statements that one line (or one-line suite) becomes."""
        out: list[Statement] = []
        run: list[cst.BaseSmallStatement] = []

        def flush() -> None:
            if run:
                run[-1] = run[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
                out.append(cst.SimpleStatementLine(list(run)))
                run.clear()

        for before, now in zip(original, updated, strict=True):
            edits = self.edits_of(before)
            ahead, behind = self.around(edits)
            new = next((e for e in edits if isinstance(e, Rewrite)), None)
            if ahead or (new is not None and new.lines):
                flush()
            out += ahead
            if new is None:
                run.append(now)
            else:
                self.left.remove(new)
                out += _parse(new.lines, self.module)
            if behind:
                flush()
                out += behind
        flush()
        return out

    def around(self, edits: Sequence[Edit]) -> tuple[list[Statement], list[Statement]]:
        ahead: list[Statement] = []
        behind: list[Statement] = []
        for edit in edits:
            if isinstance(edit, (Before, After)):
                self.left.remove(edit)
                (ahead if isinstance(edit, Before) else behind).extend(_parse(edit.lines, self.module))
        return ahead, behind


def _pragma(comment: str) -> bool:
    body = comment.lstrip("# ").lower()
    return body.startswith(("noqa", "type:", "pyright:", "pylint:", "cachelint:", "fmt:"))


def _led(statement: Statement, lines: Sequence[cst.EmptyLine]) -> Statement:
    return statement.with_changes(leading_lines=[*lines, *statement.leading_lines]) if lines else statement


def _blank_first(lines: Sequence[cst.EmptyLine]) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    """The blank lines in front of the first comment, and the rest."""
    count = next((n for n, line in enumerate(lines) if line.comment is not None), len(lines))
    return list(lines[:count]), list(lines[count:])


def _dress(pieces: list[Statement], line: cst.SimpleStatementLine, keeper: int) -> list[Statement]:
    """Give the pieces of a line its leading lines and its comment."""
    keeper = min(keeper, len(pieces) - 1)
    blank, rest = _blank_first(line.leading_lines) if keeper else ([], list(line.leading_lines))
    if keeper:
        pieces[0] = _led(pieces[0], blank)
    pieces[keeper] = _led(pieces[keeper], rest)
    if isinstance(pieces[keeper], cst.SimpleStatementLine):
        pieces[keeper] = pieces[keeper].with_changes(trailing_whitespace=line.trailing_whitespace)
    return pieces


def _parse(lines: Sequence[str], module: cst.Module) -> list[Statement]:
    try:
        parsed = cst.parse_module("\n".join(lines) + "\n", config=module.config_for_parsing)
    except cst.ParserSyntaxError as error:
        raise CannotRewrite(f"the new statements are not Python: {lines[0]}") from error
    # A newline of ours takes the file's kind.
    plain = cst.ensure_type(parsed.visit(_PlainNewlines()), cst.Module)
    body = cast("list[Statement]", list(plain.body))
    blank = [line.with_changes(indent=line.comment is not None) for line in plain.header]
    return [_led(body[0], blank), *body[1:]] if body and blank else body


class _PlainNewlines(cst.CSTTransformer):
    def leave_Newline(self, original_node: cst.Newline, updated_node: cst.Newline) -> cst.Newline:
        return updated_node.with_changes(value=None)


def _replacement(code: str, old: cst.BaseExpression, module: cst.Module) -> cst.BaseExpression:
    try:
        new = cst.parse_expression(code, config=module.config_for_parsing)
    except cst.ParserSyntaxError as error:
        raise CannotRewrite(f"the new expression is not Python: {code}") from error
    if old.lpar:
        return new if new.lpar else new.with_changes(lpar=old.lpar, rpar=old.rpar)
    return new


def _more_items(node: cst.Call | cst.Tuple | cst.List, code: str, front: bool) -> cst.Call | cst.Tuple | cst.List:
    attribute = "args" if isinstance(node, cst.Call) else "elements"
    items = list(getattr(node, attribute))
    star = code.startswith("*")
    new: cst.Arg | cst.Element | cst.StarredElement
    if isinstance(node, cst.Call):
        new = cst.ensure_type(cst.parse_expression(f"f({code})"), cst.Call).args[0]
    else:
        value = cst.parse_expression(code.lstrip("*"))
        new = cst.StarredElement(value) if star else cst.Element(value)
    if not items:
        return node.with_changes(**{attribute: [new]})
    plain = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    between = items[0].comma if len(items) > 1 and isinstance(items[0].comma, cst.Comma) else plain
    if front:
        if len(items) == 1 and isinstance(items[0].comma, cst.Comma) and not _multiline(items[0].comma):
            items[0] = items[0].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            if isinstance(node, cst.Tuple):
                node = node.with_changes(lpar=[], rpar=[])
        return node.with_changes(**{attribute: [new.with_changes(comma=between), *items]})
    place = len(items)
    if isinstance(new, cst.Arg) and new.keyword is None:
        # Keyword arguments and their like stay last.
        while place and (items[place - 1].keyword is not None or items[place - 1].star == "**"):
            place -= 1
        if place < len(items):
            return node.with_changes(args=[*items[:place], new.with_changes(comma=plain), *items[place:]])
    last = items[-1]
    spread = len(items) > 1 and isinstance(items[0].comma, cst.Comma) and _multiline(items[0].comma)
    if isinstance(last.comma, cst.Comma) and (spread or _multiline(last.comma)):
        new = new.with_changes(comma=last.comma)
        if len(items) == 1:
            between = plain
    items[-1] = last.with_changes(comma=between)
    if isinstance(node, cst.Tuple) and len(items) == 1 and not _multiline_tuple(node):
        node = node.with_changes(lpar=[], rpar=[])
    return node.with_changes(**{attribute: [*items, new]})


def _multiline_tuple(node: cst.Tuple) -> bool:
    spaces = [part.whitespace_after for part in node.lpar] + [part.whitespace_before for part in node.rpar]
    commas = [item.comma for item in node.elements if isinstance(item.comma, cst.Comma)]
    return any(isinstance(space, cst.ParenthesizedWhitespace) for space in spaces) or any(map(_multiline, commas))


def _multiline(comma: cst.Comma) -> bool:
    return isinstance(comma.whitespace_after, cst.ParenthesizedWhitespace)


def _headed(node: object, edit: Extend | Require) -> cst.CSTNode:
    if isinstance(node, cst.ClassDef) and isinstance(edit, Extend):
        return _more_bases(node, edit)
    if isinstance(node, cst.FunctionDef):
        return _required(node, edit.names) if isinstance(edit, Require) else _more_parameters(node, edit)
    raise CannotRewrite("a class has no parameters")


def _more_bases(node: cst.ClassDef, edit: Extend) -> cst.ClassDef:
    """Add bases in front of the present ones, or behind them and before keywords."""
    new = [cst.Arg(cst.parse_expression(code)) for code in edit.items]
    bases = list(node.bases)
    every = [*new, *bases] if edit.front else [*bases, *new]
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    last = len(every) - 1 + len(node.keywords)
    every = [
        arg.with_changes(comma=comma) if place < last and not isinstance(arg.comma, cst.Comma) else arg
        for place, arg in enumerate(every)
    ]
    brackets = {} if node.bases or node.keywords or isinstance(node.lpar, cst.LeftParen) else _BRACKETS
    return node.with_changes(bases=every, **brackets)


_BRACKETS = {"lpar": cst.LeftParen(), "rpar": cst.RightParen()}


def _required(node: cst.FunctionDef, names: Sequence[str]) -> cst.FunctionDef:
    """Take the default of parameters, and ``| None`` or ``Optional`` of their annotation, away."""
    parameters = [_demanded(p) if p.name.value in names else p for p in node.params.params]
    return node.with_changes(params=node.params.with_changes(params=parameters))


def _demanded(parameter: cst.Param) -> cst.Param:
    annotation = parameter.annotation
    if annotation is not None:
        kind = annotation.annotation
        if isinstance(kind, cst.BinaryOperation) and _is_none(kind.right):
            annotation = annotation.with_changes(annotation=kind.left)
        elif isinstance(kind, cst.BinaryOperation) and _is_none(kind.left):
            annotation = annotation.with_changes(annotation=kind.right)
        elif isinstance(kind, cst.Subscript) and isinstance(kind.value, cst.Name) and kind.value.value == "Optional":
            index = kind.slice[0].slice
            if isinstance(index, cst.Index):
                annotation = annotation.with_changes(annotation=index.value)
    return parameter.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT, annotation=annotation)


def _is_none(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"


def _more_parameters(node: cst.FunctionDef, edit: Extend) -> cst.FunctionDef:
    """Add parameters behind the positional ones (in front of ``*args`` and keyword-only ones)."""
    parameters = list(node.params.params)
    for code in edit.items:
        name, _, default = code.partition("=")
        new = cst.Param(cst.Name(name.strip()))
        if default:
            new = new.with_changes(
                default=cst.parse_expression(default.strip()),
                equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
            )
        if parameters:
            last = parameters[-1]
            comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
            if isinstance(last.comma, cst.Comma):
                new = new.with_changes(comma=last.comma)
                comma = parameters[0].comma if len(parameters) > 1 else comma  # type: ignore[assignment]
            parameters[-1] = last.with_changes(comma=comma)
        parameters.append(new)
    return node.with_changes(params=node.params.with_changes(params=parameters))


__all__ = ["CannotRewrite", "rewrite"]
