"""All types of a file that share functions, planned together."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cachelint.checks import FileContext
from cachelint.fix.edits import After, Claim, Edit, Extend, Outcome, Plan, Refusal, Replace, Rewrite, Text
from cachelint.fix.functions import containers
from cachelint.fix.functions.backward import Reader, renamed
from cachelint.fix.functions.containers import Shape
from cachelint.fix.functions.fields import CannotPlan, Field, judge, outside_reader
from cachelint.fix.functions.forward import Placement, Site, Slot
from cachelint.fix.functions.scope import BACKWARD, FORWARD, JVP, SETUP, Routine, Scope, Use
from cachelint.fix.functions.slices import FULL, NoSlice, Slice, Slicer, Step
from cachelint.index.module import FunctionNode
from cachelint.infer.optable import operators
from cachelint.infer.symbols import settle
from cachelint.infer.values import DEVICE, HOST, NONE, Seq
from cachelint.model import Applicability, FieldClass, Finding, Storage


@dataclass
class Family:
    """The types, their routines, and the findings by field."""

    file: FileContext
    text: Text
    scopes: list[Scope]
    findings: dict[str, list[Finding]]
    routines: list[Routine] = field(default_factory=list)

    def __post_init__(self) -> None:
        seen: dict[int, Routine] = {}
        for scope in self.scopes:
            seen.update(scope.routines)
        self.routines = sorted(seen.values(), key=lambda r: r.node.lineno)

    # -- answers -----------------------------------------------------------------------------------------------------

    def outcomes(self) -> Iterator[Outcome]:
        """A plan for the fields that can move, two where some are unsafe; a refusal for every other finding."""
        try:
            self.check_whole()
        except CannotPlan as error:
            for findings in self.findings.values():
                yield from _refused(findings, error)
            return
        fields: list[Field] = []
        for name, findings in self.findings.items():
            try:
                fields.append(self.judged(name, findings))
            except CannotPlan as error:
                yield from _refused(findings, error)
        for unsafe in (False, True):
            chosen = [item for item in fields if bool(item.doubt) is unsafe]
            yield from self.together(chosen)

    def judged(self, name: str, findings: Sequence[Finding]) -> Field:
        """A field's facts. Raises CannotPlan."""
        item = judge(name, findings, self.scopes, self.routines)
        raws = ((path, self.file.project.raw(path)) for path in self.file.project.files)
        reader = outside_reader(
            name, ((path, raw) for path, raw in raws if b"grad_fn" in raw or b"next_functions" in raw)
        )
        if reader is not None:
            from cachelint.classify import relative

            self.file.project.used.add(reader[0])
            raise CannotPlan(f"{relative(reader[0])}:{reader[1]} reads it off the graph", "read from outside", name)
        return item

    def together(self, fields: list[Field]) -> Iterator[Outcome]:
        """One plan for all of them; a field that makes it impossible is refused and left out."""
        left = list(fields)
        while left:
            try:
                yield _Assembly(self, left).plan()
                return
            except CannotPlan as error:
                out = [item for item in left if error.field is None or item.name == error.field]
                left = [item for item in left if item not in out]
                for item in out:
                    yield from _refused(item.findings, error)

    # -- what must hold for all --------------------------------------------------------------------------------------

    def check_whole(self) -> None:
        """Raise CannotPlan where something stands in the way of moving any field."""
        path = self.file.module.path
        for routine in self.routines:
            if routine.path != path:
                from cachelint.classify import relative

                raise CannotPlan(f"`{routine.name}` is in another file ({relative(routine.path)})", "in another file")
            if routine.flow.generator:
                raise CannotPlan(f"`{routine.name}` is a generator", "generator")
            for use in routine.of("escape"):
                raise CannotPlan(
                    f"`{routine.receiver}` is handed to code that can't be followed (line {use.node.lineno}), which may "
                    "read the attributes",
                    "ctx escapes",
                )
        names = {scope.context.analysis.unit.info.name for scope in self.scopes if scope.context.analysis.unit.info}
        for name, places in self.file.project.headers.items():
            for other, bases in places:
                if other != path and names & set(bases) and name not in names:
                    from cachelint.classify import relative

                    self.file.project.used.add(other)
                    raise CannotPlan(f"`{name}` in {relative(other)} derives from it", "derived elsewhere")

    def reachable(self, main: Routine) -> list[Routine]:
        """A routine and those that it hands the receiver to."""
        found: list[Routine] = []
        todo = [main]
        while todo:
            routine = todo.pop()
            if routine not in found:
                found.append(routine)
                todo += [link.target for link in routine.links]
        return found

    def mains(self, *roles: str) -> list[Routine]:
        """The routines that PyTorch calls, in these roles."""
        found: list[Routine] = []
        for scope in self.scopes:
            for role in roles:
                for routine in scope.mains.get(role, ()):
                    if routine not in found:
                        found.append(routine)
        return found


def _refused(findings: Sequence[Finding], error: CannotPlan) -> Iterator[Refusal]:
    for finding in findings:
        yield Refusal(finding, error.reason, error.kind)


# -- one attempt -----------------------------------------------------------------------------------------------------


@dataclass
class _Channel:
    """A save API with those who read back: backward, or jvp."""

    api: str
    readers: list[Reader]
    fields: list[Field]


class _Assembly:
    """Plans one set of fields. Raises CannotPlan."""

    def __init__(self, family: Family, fields: list[Field]) -> None:
        self.family = family
        self.fields = fields
        self.text = family.text
        spec = family.scopes[0].context.analysis.unit.dialect
        self.read = spec.read_back[0] + ("()" if spec.name == "paddle" else "")
        self.handed: dict[int, tuple[Routine, list[ast.Call], list[str]]] = {}
        self.sites = self.find_sites()
        self.channels = self.find_channels()
        self.notes: list[str] = []

    def plan(self) -> Plan:
        """The plan for all fields."""
        self.order()
        edits: list[Edit] = []
        placements = {id(site): self.place(site) for site in self.sites}
        slices = self.choose_slices(placements)
        shapes = {item.name: self.shapes[item.name] for item in self.fields if item.container}
        for shape in shapes.values():
            if shape.doubt and not any(item.doubt for item in self.fields):
                raise CannotPlan(f"{shape.doubt}", "unsure whether a tensor", shape.field.name)
        moved = [item for item in self.fields if item.name not in slices]
        slots = self.write_forward(placements, slices, shapes, moved)
        for channel in self.channels:
            self.write_backward(channel, slots, slices, shapes)
        for site in self.sites:
            edits += site.finish()
        for reader in self.readers():
            edits += reader.finish()
        findings = tuple(f for item in self.fields for f in item.findings)
        doubt = next((item.doubt for item in self.fields if item.doubt), "")
        scope = tuple(self.text.span(routine.node) for routine in self.family.routines)
        return Plan(
            findings,
            tuple(edits),
            Applicability.UNSAFE if doubt else Applicability.SAFE,
            self.describe(slices),
            scope,
            tuple(self.claims()),
            (doubt,) if doubt else (),
        )

    def claims(self) -> Iterator[Claim]:
        """Where each function uses each field: what the plan relies on."""
        for routine in self.family.routines:
            for item in self.fields:
                places = frozenset(
                    (use.kind, use.node.lineno, self.text.column(use.node.lineno, use.node.col_offset))
                    for use in routine.uses
                    if use.field == item.name
                )
                yield Claim(self.text.span(routine.node), routine.receiver, item.name, places)

    def describe(self, slices: dict[str, Slice]) -> str:
        """What the plan does, in a line."""
        saved = [f"`{item.name}`" for item in self.fields if item.name not in slices]
        derived = [f"`{item.name}`" for item in self.fields if item.name in slices]
        parts = []
        if saved:
            parts.append(f"move {', '.join(saved)} to {self.channels[0].api}")
        if derived:
            parts.append(f"recompute {', '.join(derived)} in backward from saved inputs")
        text = "; ".join(parts)
        return text[:1].upper() + text[1:]

    # -- who writes, who reads ---------------------------------------------------------------------------------------

    def find_sites(self) -> list[Site]:
        """For each forward the function that writes the fields and saves."""
        sites: list[Site] = []
        names = {item.name for item in self.fields}
        for main in self.family.mains(FORWARD, SETUP):
            reach = self.family.reachable(main)
            writers = [
                r for r in reach if any(u.kind == "save" or (u.kind == "store" and u.field in names) for u in r.uses)
            ]
            saving = [r for r in writers if r.of("save")]
            chosen = saving[0] if saving else main if main in writers or not writers else writers[0]
            site = Site(chosen, self.text)
            for other in writers:
                if other is not chosen:
                    if other in saving:
                        raise CannotPlan(f"both {chosen.name} and {other.name} save tensors", "saved in two functions")
                    for use in other.of("store"):
                        if use.field in names:
                            self.take_from_helper(site, other, use, reach)
            for other in reach:
                for use in other.of("load"):
                    if other is not chosen and use.field in names:
                        raise CannotPlan(
                            f"forward reads it in {other.name} (line {use.node.lineno})",
                            "read in a forward helper",
                            use.field,
                        )
            if chosen is not main:
                self.check_called_once(main, chosen, reach)
            if all(known.routine is not chosen for known in sites):
                sites.append(site)
        if not sites:
            raise CannotPlan("no forward with a ctx was found", "no forward")
        return sites

    def take_from_helper(self, site: Site, helper: Routine, use: Use, reach: Sequence[Routine]) -> None:
        """A helper that merely keeps one of its arguments: the argument is saved where the helper is called."""
        why = CannotPlan(
            f"{helper.name} writes it (line {use.node.lineno}), and {site.routine.name} saves", "written in a helper", use.field
        )
        links = [(r, link) for r in self.family.routines for link in r.links if link.target is helper]
        if len(links) != 1 or links[0][0] is not site.routine or len(helper.of("store", use.field)) != 1:
            raise why
        call, flow = links[0][1].call, site.flow
        statement = helper.flow.statement(use.node)
        plain = isinstance(statement, ast.Assign) and len(statement.targets) == 1 and statement.targets[0] is use.node
        if not plain or site.routine.of("store", use.field) or helper.of("load", use.field):
            raise why
        assert isinstance(statement, ast.Assign)
        value = statement.value
        index = helper.flow.top(statement)
        surely = helper.flow.is_top(statement) and not any(helper.flow.top(r) < index for r in helper.flow.returns)
        if not surely or not isinstance(value, ast.Name) or value.id not in helper.flow.parameters:
            raise why
        outer = flow.statement(call)
        if value.id in helper.flow.bindings or not flow.is_top(outer) or flow.nested(call) or flow.in_loop(call):
            raise why
        argument = _argument(call, helper.node, value.id)
        if argument is None:
            raise why
        site.handed[use.field] = (call, argument, use)
        site.in_helper[use.field] = (statement, 0)

    def check_called_once(self, main: Routine, helper: Routine, reach: Sequence[Routine]) -> None:
        """A helper may save when forward surely calls it, once."""
        links = [(r, link) for r in reach for link in r.links if link.target is helper]
        caller, link = links[0]
        statement = caller.flow.statement(link.call)
        index = caller.flow.top(link.call)
        direct = len(links) == 1 and caller is main and caller.flow.is_top(statement)
        if not direct or caller.flow.in_loop(link.call) or any(main.flow.top(r) < index for r in main.flow.returns):
            raise CannotPlan(f"{helper.name} saves, and forward does not surely call it once", "written in a helper")

    def find_channels(self) -> list[_Channel]:
        """Backward with save_for_backward, jvp with save_for_forward."""
        channels: list[_Channel] = []
        for role, api in ((BACKWARD, "save_for_backward"), (JVP, "save_for_forward")):
            routines = {id(r): r for main in self.family.mains(role) for r in self.family.reachable(main)}
            fields = [i for i in self.fields if any(r.of("load", i.name) for r in routines.values())]
            readers: list[Reader] = []
            for main in self.family.mains(role):
                for routine in self.reading(main, fields):
                    if all(reader.routine is not routine for reader in readers):
                        readers.append(Reader(routine, self.text))
            if fields:
                channels.append(_Channel(api, readers, fields))
        read = {item.name for channel in channels for item in channel.fields}
        for item in self.fields:
            if item.name not in read:
                raise CannotPlan("backward reads it in a way that was not found", "indirect read", item.name)
        return channels

    def reading(self, main: Routine, fields: Sequence[Field]) -> list[Routine]:
        """The routine that reads the fields and unpacks, on behalf of one backward."""
        names = {item.name for item in fields}
        reach = self.family.reachable(main)
        touching = [
            r
            for r in reach
            if any(u.kind == "saved" or (u.kind in ("load", "store", "delete") and u.field in names) for u in r.uses)
        ]
        if len(touching) > 1:
            for helper in touching:
                if helper is not main:
                    self.hand_on(main, helper, fields, reach)
            return [main]
        for routine in touching:
            if routine is not main and not routine.of("saved"):
                links = [(r, link) for r in reach for link in r.links if link.target is routine]
                if len(links) != 1 or links[0][0].flow.in_loop(links[0][1].call):
                    self.hand_on(main, routine, fields, reach)
                    return [main]
        return touching

    def hand_on(self, main: Routine, helper: Routine, fields: Sequence[Field], reach: Sequence[Routine]) -> None:
        """A helper of backward gets the values it reads as arguments. Raises CannotPlan where it can't."""
        names = [item.name for item in fields if helper.of("load", item.name)]
        first = names[0] if names else None

        def no(why: str) -> CannotPlan:
            return CannotPlan(f"{helper.name} reads it, and {why}", "read in a helper", first)

        if helper.of("saved"):
            raise no(f"both {main.name} and {helper.name} read what is saved")
        links = [(r, link) for r in self.family.routines for link in r.links if link.target is helper]
        if not links or any(r is not main for r, _ in links):
            raise no(f"{main.name} is not the only one to call it")
        word = re.compile(rf"\b{re.escape(helper.name)}\b")
        if len(word.findall(self.text.text)) != len(links) + 1:
            raise no("it may be called from elsewhere")
        mark = helper.name.encode()
        project = self.family.file.project
        for path in project.files:
            if path != helper.path and mark in project.raw(path):
                project.used.add(path)
                raise no("another file may call it")
        spec = helper.node.args
        if spec.vararg is not None or any(isinstance(a, ast.Starred) for _, link in links for a in link.call.args):
            raise no("it takes arguments of any number")
        for item in fields:
            if item.name in names and item.container:
                raise no("it is a container")
            if helper.of("store", item.name) or helper.of("delete", item.name):
                raise no("writes it as well")
        self.handed[id(helper)] = (helper, [link.call for _, link in links], names)

    def hand_down(self, reader: Reader, locals_: dict[str, str]) -> None:
        """Write the parameters and arguments for helpers of a reader."""
        for helper, calls, names in self.handed.values():
            if self.family.text is not self.text or not any(link.target is helper for link in reader.routine.links):
                continue
            taken: set[str] = set()
            optional = bool(helper.node.args.defaults)
            for name in names:
                parameter = helper.flow.fresh(name, taken)
                taken.add(parameter)
                code = f"{parameter}=None" if optional else parameter
                reader.edits.append(Extend(self.text.span(helper.node), (code,)))
                for use in helper.of("load", name):
                    reader.edits.append(Replace(self.text.span(use.node), parameter))
                for call in calls:
                    reader.edits.append(Extend(self.text.span(call), (f"{parameter}={locals_[name]}",)))
            for call in calls:
                reader.loads.append(call)

    def readers(self) -> list[Reader]:
        """Every reader once."""
        return [reader for channel in self.channels for reader in channel.readers]

    # -- forward -----------------------------------------------------------------------------------------------------

    def order(self) -> None:
        """Fields in the order of their first write."""
        first = {}
        for site in self.sites:
            for use in site.routine.of("store"):
                first.setdefault(use.field, (use.node.lineno, use.node.col_offset))
        self.fields.sort(key=lambda item: first.get(item.name, (0, 0)))
        for channel in self.channels:
            channel.fields.sort(key=lambda item: first.get(item.name, (0, 0)))
        self.shapes: dict[str, Shape] = {}
        for item in self.fields:
            if item.container:
                if len(self.sites) != 1:
                    raise CannotPlan("several forwards build it", "several containers", item.name)
                if len(self.channels) != 1:
                    raise CannotPlan("both backward and jvp read the container", "container in jvp", item.name)
                self.shapes[item.name] = containers.shape_of(item, self.sites[0])
        runs = [shape.field.name for shape in self.shapes.values() if shape.parts is None]
        if len(runs) > 1:
            raise CannotPlan("two runs of tensors of unknown length would have to be told apart", "two runs", runs[-1])

    def place(self, site: Site) -> dict[str, Placement]:
        """Where each channel's tensors are saved."""
        found = {}
        for channel in self.channels:
            indices: list[int] = []
            for item in self.fields:
                stable = None if item.container else site.stable(item.name)
                if stable is not None:
                    indices.append(stable)
                else:
                    indices += site.tops(item.name)
            found[channel.api] = self.behind_last_write(site, channel, indices)
            if found[channel.api].kind == "extend":
                continue
            indices = [top for item in self.fields for top in site.tops(item.name)]
            indices += [containers.ready(self.shapes[i.name], site) for i in channel.fields if i.container]
            found[channel.api] = site.placement(channel.api, indices)
        return found

    def behind_last_write(self, site: Site, channel: _Channel, indices: list[int]) -> Placement:
        """The placement behind these statements, and behind the last change of a container."""
        changes = [containers.ready(self.shapes[i.name], site) for i in channel.fields if i.container]
        return site.placement(channel.api, [*indices, *changes])

    def choose_slices(self, placements: dict[int, dict[str, Placement]]) -> dict[str, Slice]:
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
        for item in self.fields:
            pairs = site.pairs(item.name)
            if (
                item.recompute
                and not item.container
                and len(pairs) == 1
                and pairs[0].plain
                and pairs[0].value is not None
            ):
                candidates[item.name] = (pairs[0].value, pairs[0].statement)
        for item in self.fields:
            if item.name not in candidates and not item.container:
                direct = site.direct(item.name, place)
                if direct is not None:
                    saved.add(direct)
        slicer = self.slicer(site, reader)
        kept = self.kept_hosts(site)
        fields: dict[str, tuple[ast.expr, ast.stmt] | None] = dict.fromkeys(kept)
        fields.update({item.name: candidates.get(item.name) for item in self.fields if not item.container})
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
                    self.notes.append(f"`{name}` is saved as it is: {error}")
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

    def kept_hosts(self, site: Site) -> set[str]:
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
            once = sum(len(r.of("store", use.field)) + len(r.of("delete", use.field)) for r in self.family.routines) == 1
            if use.field in safe and once and pair.plain and site.flow.is_top(pair.statement):
                found.add(use.field)
        return found

    def already_saved(self, site: Site, place: Placement, reader: Reader) -> dict[str, str]:
        """Forward's names that the present call saves, with the names that backward unpacks them to."""
        if len(place.calls) != 1:
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

    def slicer(self, site: Site, reader: Reader) -> Slicer:
        """The slicer of a forward, for a backward."""
        routine = site.routine
        scope = next(s for s in self.family.scopes if id(routine.node) in s.routines)
        project, module = self.family.file.project, self.family.file.module
        dotted: dict[str, str] = {}
        for name in routine.flow.used:
            found = project.resolve(module, name)
            if found is not None and found.binding is None and found.module is None and found.dotted:
                dotted[name] = found.dotted
        externals = frozenset(reader.flow.parameters | set(reader.flow.bindings)) | frozenset(
            n for scope_ in ast.walk(reader.routine.node) if isinstance(scope_, ast.Global) for n in scope_.names
        )
        return Slicer(routine, _kinds(scope, routine), frozenset(), _mutated(scope, routine), externals, dotted)

    def write_forward(
        self,
        placements: dict[int, dict[str, Placement]],
        slices: dict[str, Slice],
        shapes: dict[str, Shape],
        moved: Sequence[Field],
    ) -> dict[str, list[Slot]]:
        """Write all sites; the slots of each field, by name (of the inputs that slices need, by ``=name``)."""
        slots: dict[str, list[Slot]] = {}
        attributes = {u.field for r in self.family.routines for u in r.uses}
        self.hosts: dict[str, str] = {}
        front = {channel.api: self.front(channel) for channel in self.channels}
        for site in self.sites:
            own: dict[str, list[Slot]] = {}
            place = max(placements[id(site)].values(), key=lambda p: (p.kind == "collect", p.index))
            for item in moved:
                if not site.writes(item.name):
                    own[item.name] = [Slot("None", item.name)]
                elif item.container:
                    containers.take_apart(shapes[item.name], site, place, attributes)
                    own[item.name] = shapes[item.name].slots
                else:
                    own[item.name] = [Slot(site.local(item.name, place), item.name)]
            codes = {slot.code for items in own.values() for slot in items}
            for name, found in slices.items():
                self.keep_hosts(site, name, found, attributes)
                for tensor in found.tensors:
                    if tensor not in self.saved_names and tensor not in codes:
                        own[f"={tensor}"] = [Slot(tensor, tensor)]
                        codes.add(tensor)
            self.drop_slices(site, slices, place, codes | set(self.saved_names))
            for channel in self.channels:
                arguments = [s for key in self.keys(channel, own) for s in own[key]]
                if arguments or placements[id(site)][channel.api].dead:
                    place_ = placements[id(site)][channel.api]
                    if not arguments:
                        for call in place_.dead:
                            site.dropped.add(site.flow.statement(call))
                    else:
                        site.save(channel.api, arguments, place_, front[channel.api])
            if not slots:
                slots = own
        self.fronts = front
        return slots

    def keys(self, channel: _Channel, slots: dict[str, list[Slot]]) -> list[str]:
        """The order of the slots: fields, inputs of slices, then the run of tensors (which must be last)."""
        names = [item.name for item in channel.fields if item.name in slots]
        names += [key for key in slots if key.startswith("=")]
        runs = [name for name in names if any(slot.star for slot in slots[name])]
        return [name for name in names if name not in runs] + runs

    def front(self, channel: _Channel) -> bool:
        """Whether new tensors go in front of the present ones: behind a ``*run`` nothing may follow."""
        last = other = False
        lists: list[list[ast.expr]] = [u.node.args for s in self.sites for u in s.routine.of("save", channel.api)]  # type: ignore[attr-defined]
        for reader in channel.readers:
            for use in reader.routine.of("saved"):
                statement = reader.flow.statement(use.node)
                target = statement.targets[0] if isinstance(statement, ast.Assign) else None
                if isinstance(target, (ast.Tuple, ast.List)) and statement.value is use.node:  # type: ignore[attr-defined]
                    lists.append(target.elts)
        for items in lists:
            for number, item in enumerate(items):
                if isinstance(item, ast.Starred):
                    last |= number == len(items) - 1
                    other |= number < len(items) - 1
        if last and other:
            raise CannotPlan("tensors are saved in runs of unknown length that can't be told apart", "two runs")
        runs = any(shape.parts is None for shape in self.shapes.values())
        if runs and (last or other):
            raise CannotPlan("two runs of tensors of unknown length would have to be told apart", "two runs")
        return last

    def keep_hosts(self, site: Site, name: str, found: Slice, attributes: set[str]) -> None:
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
                attribute = host
                while attribute in attributes:
                    attribute = f"{attribute}_value"
                attributes.add(attribute)
                self.hosts[host] = attribute
                statement = site.pairs(name)[0].statement
                site.edits.append(After(self.text.span(statement), (f"{receiver}.{attribute} = {host}",)))

    def later(self) -> list[Routine]:
        """The routines of backward and jvp."""
        return [r for r in self.family.routines if r.roles & {BACKWARD, JVP}]

    def drop_slices(self, site: Site, slices: dict[str, Slice], place: Placement, kept: set[str]) -> None:
        """Take the writes of derived fields out of forward, and what only fed them."""
        for name in slices:
            pair = site.pairs(name)[0]
            if site.routine.of("load", name):
                if isinstance(pair.value, ast.Name) and site.direct(name, place) is not None:
                    site.local(name, place)
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
            targets = [n.id for n in ast.walk(step.targets[0]) if isinstance(n, ast.Name)]
            if any(target in kept or not _dead(site, target, gone) for target in targets):
                continue
            if any(len(site.flow.bindings.get(target, ())) > 1 for target in targets):
                continue
            site.dropped.add(step)
            gone.add(step)

    # -- backward ----------------------------------------------------------------------------------------------------

    def write_backward(
        self, channel: _Channel, slots: dict[str, list[Slot]], slices: dict[str, Slice], shapes: dict[str, Shape]
    ) -> None:
        """Write all readers of a channel."""
        saved_before = any(site.routine.of("save", channel.api) for site in self.sites)
        by_name = {item.name: item for item in channel.fields}
        for reader in channel.readers:
            read = f"{reader.routine.receiver}.{self.read}"
            names: list[str] = []
            bound: dict[str, str] = {}
            inputs = dict(self.saved_names) if slices else {}
            if inputs:
                reader.taken.update(inputs.values())
            for key in self.keys(channel, slots):
                if key.startswith("="):
                    local = reader.flow.fresh(key[1:], reader.taken)
                    reader.taken.add(local)
                    inputs[key[1:]] = local
                    names.append(local)
                elif by_name[key].container:
                    names += containers.put_together(shapes[key], reader)
                elif reader.routine.of("load", key) or self.read_below(reader, key):
                    wanted = slots[key][0].code if len(self.sites) == 1 else key
                    local = reader.bind(key, wanted if wanted.isidentifier() else key)
                    names.append(local)
                    inputs[slots[key][0].code] = local
                    bound[key] = local
                else:
                    reader.replace(key, key)
                    names.append("_")
            if slices:
                self.write_slices(reader, slices, inputs, bound)
            self.hand_down(reader, bound)
            if not reader.routine.of("saved") and saved_before and not names and reader.lines:
                raise CannotPlan("what is saved is not read back in backward", "not read back")
            reader.unpack(names, self.fronts[channel.api], read, saved_before)

    def read_below(self, reader: Reader, name: str) -> bool:
        """Whether a helper of a reader reads a field."""
        return any(
            name in names and any(link.target is helper for link in reader.routine.links)
            for helper, _, names in self.handed.values()
        )

    def write_slices(
        self, reader: Reader, slices: dict[str, Slice], inputs: dict[str, str], bound: dict[str, str]
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
                own = [i for i in steps if i < index and any(value.id in _names(t) for t in steps[i])]
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
                for name in _names(step.target):
                    own_[name] = wanted.get((index, name)) or reader.flow.fresh(name, reader.taken)
                    reader.taken.add(own_[name])
                left = renamed(self.text.source(step.target), own_)
                reader.lines.append(f"{left} = {right}")
                fresh.update(own_)
            names.update(fresh)


def _with_saved(slicer: Slicer, saved: set[str]) -> Slicer:
    return Slicer(slicer.routine, slicer.kinds, frozenset(saved), slicer.mutated, slicer.externals, slicer.dotted, slicer.fields)


def _argument(call: ast.Call, node: FunctionNode, name: str) -> ast.expr | None:
    """What a call gives for a parameter of a plain function, None where that isn't written out."""
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords):
        return None
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    positional = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    place = positional.index(name) if name in positional else -1
    return call.args[place] if 0 <= place < len(call.args) else None


def _names(target: ast.expr) -> list[str]:
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]


def _dead(site: Site, name: str, gone: set[ast.AST]) -> bool:
    """Whether nothing that stays reads a local."""
    for load in site.flow.loads(name):
        current: ast.AST | None = load
        while current is not None and current not in gone:
            current = site.flow.parents.get(current)
        if current is None:
            return False
    return True


def _kinds(scope: Scope, routine: Routine) -> dict[str, int]:
    """What each input of a forward or setup_context is, by its name there."""
    analysis = scope.context.analysis
    settled, symbols = analysis.machine.settled, analysis.machine.symbols
    kinds = {name: (settled.get(name) or settle(symbol)).kinds for name, symbol in symbols.items()}
    parameters = list(analysis.parameters)
    if SETUP not in routine.roles:
        return {name: kinds[name] for name in parameters if name in kinds}
    own = [a.arg for a in (*routine.node.args.posonlyargs, *routine.node.args.args)]
    found: dict[str, int] = {}
    inputs = own[1] if len(own) > 1 else ""
    output = own[-1] if len(own) > 2 else ""
    result = analysis.forward_result
    if output and result is not None and not isinstance(result.ref, Seq) and result.kinds & DEVICE:
        found[output] = DEVICE
    for statement in routine.node.body:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Name) and value.id == inputs:
            for parameter, element in zip(parameters, target.elts, strict=False):
                if isinstance(element, ast.Starred):
                    break
                if isinstance(element, ast.Name) and parameter in kinds:
                    found[element.id] = kinds[parameter]
        elif isinstance(target, ast.Name) and isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
            index = value.slice.value if isinstance(value.slice, ast.Constant) else None
            if value.value.id == inputs and isinstance(index, int) and 0 <= index < len(parameters):
                if parameters[index] in kinds:
                    found[target.id] = kinds[parameters[index]]
    return found


def _mutated(scope: Scope, routine: Routine) -> frozenset[str]:
    """Names whose tensors forward changes in place, those that share their storage included."""
    names: set[str] = set()
    roots: set[str] = set()
    for mutation in scope.context.analysis.log.mutations:
        if mutation.phase == "forward":
            roots |= mutation.value.roots
            names.add(mutation.name)
    names |= {root[2:] for root in roots if root.startswith("p:")}
    table = operators()
    for node in ast.walk(routine.node):
        target: ast.expr | None = None
        if isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name.endswith("_") and name not in table.not_inplace:
                target = node.func.value
            names |= {k.value.id for k in node.keywords if k.arg == "out" and isinstance(k.value, ast.Name)}
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            target = target.value
        if isinstance(target, ast.Name):
            names.add(target.id)
    while True:
        more: set[str] = set()
        for node in ast.walk(routine.node):
            if isinstance(node, ast.Assign) and any(n in names for t in node.targets for n in _names(t)):
                if _may_alias(node.value):
                    more |= {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            elif isinstance(node, ast.Assign) and _may_alias(node.value):
                if any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node.value)):
                    more |= {n for t in node.targets for n in _names(t)}
        if more <= names:
            return frozenset(names)
        names |= more


def _may_alias(value: ast.expr) -> bool:
    if isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Constant)):
        return False
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        category = operators().methods.get(value.func.attr)
        return category not in ("elementwise", "rowstat", "constant", "host_value", "expensive", "random")
    return True


_ = (HOST, NONE, Rewrite)
