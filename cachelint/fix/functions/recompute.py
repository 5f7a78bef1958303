"""Fields that backward derives again: which ones, what has to be saved for them, and the code on both sides."""

from __future__ import annotations

import ast
import dataclasses
from typing import TYPE_CHECKING

from cachelint.fix.edits import After
from cachelint.fix.functions.autocast import modes_differ
from cachelint.fix.functions.backward import Reader, renamed
from cachelint.fix.functions.flow import plain_name
from cachelint.fix.functions.forward import Placement, Site
from cachelint.fix.functions.inputs import changed_in_place, input_kinds, names_of
from cachelint.fix.functions.scope import BACKWARD, FORWARD, JVP, SETUP, Routine, Scope
from cachelint.fix.functions.slices import FULL, NoSlice, OtherMode, Slice, Slicer, Step
from cachelint.index.walk import walk
from cachelint.model import FieldClass, Storage

if TYPE_CHECKING:
    from cachelint.fix.functions.assembly import Assembly


class Recompute:
    """The part of an assembly that deals with derived values."""

    def choose_slices(self: Assembly, placements: dict[int, dict[str, Placement]]) -> dict[str, Slice]:  # type: ignore[misc]
        """The fields that are derived again in backward, with their slices."""
        self.saved_names: dict[str, str] = {}
        self.kept: dict[str, str] = {}
        if len(self.sites) != 1 or len(self.channels) != 1 or self.channels[0].api != "save_for_backward":
            return {}
        channel, site = self.channels[0], self.sites[0]
        if len(channel.readers) != 1 or channel.readers[0].routine.path != site.routine.path:
            return {}
        place = placements[id(site)][channel.api]
        reader = channel.readers[0]
        self.saved_names = self.already_saved(site, place, reader)
        if self.saved_names is None or place.kind == "collect" or len(place.calls) > 1:
            self.saved_names = {}
            return {}
        end = place.index
        saved = set(self.saved_names)
        candidates: dict[str, tuple[ast.expr, ast.stmt]] = {}
        changed = changed_in_place(self.scope_of(site), site.routine)
        for item in self.fields:
            pairs = site.pairs(item.name)
            if f"{site.routine.receiver}.{item.name}" in changed:
                continue
            if item.recompute and item.plain and len(pairs) == 1 and pairs[0].plain and pairs[0].value is not None:
                candidates[item.name] = (pairs[0].value, pairs[0].statement)
        for item in self.fields:
            if item.name not in candidates and item.plain:
                direct = site.direct(item.name, place)
                if direct is not None:
                    saved.add(direct)
        slicer = self.slicer(site, reader)
        kept = self.kept_hosts(site)
        fields: dict[str, tuple[ast.expr, ast.stmt] | None] = dict.fromkeys(kept)
        fields.update({item.name: candidates.get(item.name) for item in self.fields if item.plain})
        slicer.fields = fields
        chosen: dict[str, Slice] = {}
        while True:
            slicer = _with_saved(slicer, saved)
            before = set(chosen)
            for name, (value, statement) in candidates.items():
                if name in chosen:
                    continue
                try:
                    found = slicer.slice(value, statement, end)
                except NoSlice as error:
                    if isinstance(error, OtherMode):
                        self.by_mode[name] = error.operator
                    continue
                missing = [t for t in found.tensors if t not in saved]
                if not missing or (found.size == FULL and len(missing) == 1):
                    chosen[name] = found
                    saved.update(missing)
                    slicer = _with_saved(slicer, saved)
            if set(chosen) == before:
                break
        slicer.fields = {name: known if name in chosen else None for name, known in fields.items()}
        self.kept = {name: f"{reader.routine.receiver}.{name}" for name in kept}
        result = {}
        for name in chosen:
            value, statement = candidates[name]
            result[name] = slicer.slice(value, statement, end)
        return result

    def kept_hosts(self: Assembly, site: Site) -> set[str]:  # type: ignore[misc]
        """Host values that stay on ctx: set once, in the body of forward, and never again."""
        safe = {
            field_.field
            for scope in self.family.scopes
            for field_ in scope.context.report.fields
            if field_.cls is FieldClass.SAFE and field_.storage is Storage.HOST
        }
        found: set[str] = set()
        for use in site.routine.of("store"):
            pair = site.pair(use)
            once = (
                sum(len(r.of("store", use.field)) + len(r.of("delete", use.field)) for r in self.family.routines) == 1
            )
            if use.field in safe and once and pair.plain and site.flow.is_top(pair.statement):
                found.add(use.field)
        return found

    def already_saved(self: Assembly, site: Site, place: Placement, reader: Reader) -> dict[str, str]:  # type: ignore[misc]
        """Forward's names that the present call saves, with the names that backward unpacks them to."""
        if len(place.calls) != 1 or self.counted:
            return {}
        uses = reader.routine.of("saved")
        if len(uses) != 1 or reader.flow.nested(uses[0].node):
            return {}
        statement = reader.flow.statement(uses[0].node)
        if (
            not isinstance(statement, ast.Assign)
            or statement.value is not uses[0].node
            or not reader.flow.is_top(statement)
        ):
            return {}
        target = statement.targets[0]
        if not isinstance(target, (ast.Tuple, ast.List)):
            return {}
        names = {item.name for item in self.fields}
        loads: list[ast.expr] = [u.node for u in reader.routine.of("load") if u.field in names]
        loads += [call for _, calls, _ in self.handed.values() for call in calls]
        after = all(reader.flow.top(node) > reader.flow.top(statement) for node in loads)
        if not after and not reader.moves_up(statement, target):
            return {}
        found: dict[str, str] = {}
        for arg, element in zip(place.calls[0].args, target.elts, strict=False):
            if isinstance(arg, ast.Starred) or isinstance(element, ast.Starred):
                break
            if isinstance(arg, ast.Name) and isinstance(element, ast.Name) and element.id != "_":
                found.setdefault(arg.id, element.id)
        return found

    def scope_of(self: Assembly, site: Site) -> Scope:  # type: ignore[misc]
        """The type whose forward a site is."""
        return next(s for s in self.family.scopes if id(site.routine.node) in s.routines)

    def slicer(self: Assembly, site: Site, reader: Reader) -> Slicer:  # type: ignore[misc]
        """The slicer of a forward, for a backward."""
        routine = site.routine
        scope = self.scope_of(site)
        dotted: dict[str, str] = {}
        for name in routine.flow.used:
            found = self.family.file.project.resolve(self.family.file.module, name)
            if found is not None and found.binding is None and found.module is None and found.dotted:
                dotted[name] = found.dotted
        externals = frozenset(reader.flow.parameters | set(reader.flow.bindings)) | frozenset(
            n for scope_ in walk(reader.routine.node) if isinstance(scope_, ast.Global) for n in scope_.names
        )
        forward = [main.node for main in self.family.mains(FORWARD, SETUP)]
        backward = [main.node for main in self.family.mains(BACKWARD)]
        return Slicer(
            routine,
            input_kinds(scope, routine),
            frozenset(),
            changed_in_place(scope, routine),
            externals,
            dotted,
            other_mode=modes_differ(forward, backward),
        )

    def keep_hosts(self: Assembly, site: Site, name: str, found: Slice, attributes: set[str]) -> None:  # type: ignore[misc]
        """Host values that a slice needs stay on ctx; an attribute that has them is used."""
        receiver = site.routine.receiver
        names = {item.name for item in self.fields}
        for host in found.hosts:
            if host in self.hosts:
                continue
            for use in site.routine.of("store"):
                pair = site.pair(use)
                same = isinstance(pair.value, ast.Name) and pair.value.id == host and pair.plain
                single = len(site.routine.of("store", use.field)) == 1 and use.field not in names
                clean = not any(r.of("store", use.field) or r.of("delete", use.field) for r in self.later())
                bound = host not in site.flow.bindings
                if same and single and clean and bound and site.flow.is_top(pair.statement):
                    self.hosts[host] = use.field
                    break
            else:
                attribute = plain_name(host)
                while attribute in attributes:
                    attribute = f"{attribute}_value"
                attributes.add(attribute)
                self.hosts[host] = attribute
                statement = site.pairs(name)[0].statement
                site.edits.append(After(self.text.span(statement), (f"{receiver}.{attribute} = {host}",)))

    def later(self: Assembly) -> list[Routine]:  # type: ignore[misc]
        """The routines of backward and jvp."""
        return [r for r in self.family.routines if r.roles & {BACKWARD, JVP}]

    def drop_slices(self: Assembly, site: Site, slices: dict[str, Slice], place: Placement, kept: set[str]) -> None:  # type: ignore[misc]
        """Take the writes of derived fields out of forward, and what only fed them."""
        kept = set(kept)
        for name in slices:
            pair = site.pairs(name)[0]
            if site.routine.of("load", name):
                if isinstance(pair.value, ast.Name) and site.direct(name, place) is not None:
                    kept.add(site.local(name, place))
                else:
                    inits = list(site.inits)
                    site.local(name, place)
                    site.inits = inits
            else:
                site.drop(pair)
        steps = {step.statement for found in slices.values() for step in found.steps}
        gone: set[ast.AST] = set(site.dropped)
        for statement, places in site.pairs_dropped.items():
            if isinstance(statement, ast.Assign) and isinstance(statement.value, (ast.Tuple, ast.List)):
                gone.update(statement.value.elts[place_] for place_ in places)
        for step in sorted(steps, key=lambda s: -s.lineno):
            targets = [n.id for n in walk(step.targets[0]) if isinstance(n, ast.Name)]
            if any(target in kept or not _dead(site, target, gone) for target in targets):
                continue
            if any(len(site.flow.bindings.get(target, ())) > 1 for target in targets):
                continue
            site.dropped.add(step)
            gone.add(step)

    def write_slices(  # type: ignore[misc]
        self: Assembly, reader: Reader, slices: dict[str, Slice], inputs: dict[str, str], bound: dict[str, str]
    ) -> None:
        """The steps of all slices in the order of forward, each once, with the names of backward."""
        site = self.sites[0]
        flow = site.flow
        receiver, own_name = reader.routine.receiver, site.routine.receiver
        names = {**inputs, **{host: f"{receiver}.{attribute}" for host, attribute in self.hosts.items()}}
        steps: dict[int, dict[ast.expr, Step]] = {}
        ends: dict[int, list[str]] = {}
        wanted: dict[tuple[int, str], str] = {}
        for found in slices.values():
            for step in found.steps:
                steps.setdefault(flow.top(step.statement), {})[step.target] = step
        for field_name, found in slices.items():
            index = flow.top(site.pairs(field_name)[0].statement)
            value = found.value
            if isinstance(value, ast.Name):
                own = [i for i in steps if i < index and any(value.id in names_of(t) for t in steps[i])]
                if own:
                    key = (max(own), value.id)
                    if key in wanted:
                        reader.replace(field_name, wanted[key])
                    else:
                        wanted[key] = reader.bind(field_name, value.id)
                    bound[field_name] = wanted[key]
                    continue
            ends.setdefault(index, []).append(field_name)
        for index in sorted({*steps, *ends}):
            for field_name in ends.get(index, ()):
                value = slices[field_name].value
                assert value is not None
                code = renamed(f"({self.text.source(value)})", names, own_name, {**self.kept, **bound})[1:-1]
                local = reader.bind(field_name)
                bound[field_name] = local
                reader.lines.append(f"{local} = {code}")
            fresh: dict[str, str] = {}
            for step in steps.get(index, {}).values():
                right = renamed(f"({self.text.source(step.value)})", names, own_name, {**self.kept, **bound})[1:-1]
                own_: dict[str, str] = {}
                for name in names_of(step.target):
                    own_[name] = wanted.get((index, name)) or reader.flow.fresh(name, reader.taken)
                    reader.taken.add(own_[name])
                left = renamed(self.text.source(step.target), own_)
                reader.lines.append(f"{left} = {right}")
                fresh.update(own_)
            names.update(fresh)


def _with_saved(slicer: Slicer, saved: set[str]) -> Slicer:
    return dataclasses.replace(slicer, saved=frozenset(saved), sizes={})


def _dead(site: Site, name: str, gone: set[ast.AST]) -> bool:
    """Whether nothing that stays reads a local."""
    for load in site.flow.loads(name):
        current: ast.AST | None = load
        while current is not None and current not in gone:
            current = site.flow.parents.get(current)
        if current is None:
            return False
    return True
