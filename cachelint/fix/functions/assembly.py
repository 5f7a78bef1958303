"""One attempt to move a set of fields: who writes, who reads, where it is saved, and the edits of both sides."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cachelint.fix.edits import Claim, Edit, Elsewhere, Plan, assigned
from cachelint.fix.functions import containers, records
from cachelint.fix.functions.backward import Reader
from cachelint.fix.functions.containers import Shape
from cachelint.fix.functions.fields import CannotPlan, Field
from cachelint.fix.functions.flow import plain_name
from cachelint.fix.functions.forward import Placement, Site, Slot
from cachelint.fix.functions.helpers import Helpers
from cachelint.fix.functions.lent import Lending, Lent, reads_saved_only
from cachelint.fix.functions.names import Kinds, import_of
from cachelint.fix.functions.naming import Naming
from cachelint.fix.functions.recompute import Recompute
from cachelint.fix.functions.records import Record
from cachelint.fix.functions.scope import BACKWARD, FORWARD, JVP, SETUP, Routine, with_default
from cachelint.fix.functions.slices import Slice
from cachelint.infer.values import Inst
from cachelint.model import Applicability

if TYPE_CHECKING:
    from cachelint.fix.functions.family import Family


@dataclass
class Channel:
    """A save API with those who read back: backward, or jvp."""

    api: str
    readers: list[Reader]
    fields: list[Field]


class Assembly(Helpers, Lending, Naming, Recompute):
    """Plans one set of fields. Raises CannotPlan."""

    def __init__(self, family: Family, fields: list[Field]) -> None:
        self.family = family
        self.fields = fields
        self.text = family.text
        spec = family.scopes[0].context.analysis.unit.dialect
        self.read = spec.read_back[0] + ("()" if spec.name == "paddle" else "")
        self.handed: dict[int, tuple[Routine, list[ast.Call], list[str]]] = {}
        self.lent: dict[int, list[tuple[ast.Call, Lent]]] = {}
        """For the id of a backward, the calls of helpers that read what is saved."""
        self.sites = self.find_sites()
        self.channels = self.find_channels()
        self.by_mode: dict[str, str] = {}
        """Fields that are not derived again since autocast chooses the dtype of the operator."""
        self.imports: set[str] = set()
        """The modules that the file has to import."""

    def plan(self) -> Plan:
        """The plan for all fields."""
        self.order()
        edits: list[Edit] = []
        placements = {id(site): self.place(site) for site in self.sites}
        slices = self.choose_slices(placements)
        shapes = {item.name: self.shapes[item.name] for item in self.fields if item.container}
        moved = [item for item in self.fields if item.name not in slices]
        slots = self.write_forward(placements, slices, shapes, moved)
        for channel in self.channels:
            self.write_backward(channel, slots, slices, shapes)
        for site in self.sites:
            edits += site.finish()
        for reader in self.readers():
            edits += reader.finish()
        for name in sorted(self.imports):
            edits.append(import_of(self.family.file.module, name, self.family.routines[0].node, self.text))
        own, others = self.lent_edits()
        edits += own
        findings = tuple(f for item in self.fields for f in item.findings)
        scope = tuple(self.text.span(routine.node) for routine in self.family.routines)
        return Plan(
            findings,
            tuple(edits),
            Applicability.SAFE,
            self.describe(slices),
            scope,
            tuple(self.claims()),
            elsewhere=tuple(Elsewhere(path, tuple(changes)) for path, changes in others.items()),
        )

    def claims(self) -> Iterator[Claim]:
        """Where each function uses each field: what the plan relies on."""
        for routine in self.family.routines:
            for item in self.fields:
                places = frozenset(
                    (
                        "test" if with_default(use) else use.kind,
                        use.node.lineno,
                        self.text.column(use.node.lineno, use.node.col_offset),
                    )
                    for use in routine.uses
                    if use.field == item.name
                )
                yield Claim(self.text.span(routine.node), routine.receiver, item.name, places)

    def describe(self, slices: dict[str, Slice]) -> str:
        """What the plan does, in a line."""
        mixed = {name for name, shape in self.shapes.items() if shape.mixed} | self.records.keys()
        split = [f"`{item.name}`" for item in self.fields if item.split and not item.container]
        boxes = [f"`{item.name}`" for item in self.fields if item.name in mixed]
        rest = [item for item in self.fields if item.name not in slices and item.name not in mixed]
        saved = [f"`{item.name}`" for item in rest if not item.split]
        derived = [f"`{item.name}`" for item in self.fields if item.name in slices]
        parts = []
        if saved:
            parts.append(f"move {', '.join(saved)} to {self.channels[0].api}")
        if split:
            parts.append(f"move {', '.join(split)} to {self.channels[0].api} where it is a tensor")
        if boxes:
            parts.append(f"move the tensors in {', '.join(boxes)} to {self.channels[0].api}")
        if derived:
            parts.append(f"recompute {', '.join(derived)} in backward from saved inputs")
        parts += self.lent_words()
        for name, operator in self.by_mode.items():
            parts.append(f"not recomputed: `{name}`, as autocast may choose another dtype for `{operator}` in backward")
        text = "; ".join(parts)
        return text[:1].upper() + text[1:]

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

    def find_channels(self) -> list[Channel]:
        """Backward with save_for_backward, jvp with save_for_forward."""
        channels: list[Channel] = []
        for role, api in ((BACKWARD, "save_for_backward"), (JVP, "save_for_forward")):
            routines = {id(r): r for main in self.family.mains(role) for r in self.family.reachable(main)}
            fields = [i for i in self.fields if any(r.of("load", i.name) for r in routines.values())]
            readers: list[Reader] = []
            for main in self.family.mains(role):
                for routine in self.reading(main, fields):
                    if all(reader.routine is not routine for reader in readers):
                        lent = [(call, found.parameter) for call, found in self.lent.get(id(routine), ())]
                        readers.append(Reader(routine, self.text, lent=lent))
            if fields:
                channels.append(Channel(api, readers, fields))
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
        lent = [r for r in touching if r is not main and reads_saved_only(r, names)] if fields else []
        for helper in lent:
            self.lend(main, helper, reach)
        if lent:
            touching = [main, *(r for r in touching if r is not main and r not in lent)]
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

    def readers(self) -> list[Reader]:
        """Every reader once."""
        return [reader for channel in self.channels for reader in channel.readers]

    def order(self) -> None:
        """Fields in the order of their first write."""
        first: dict[str, tuple[int, int]] = {}
        for site in self.sites:
            for use in site.routine.of("store"):
                first.setdefault(use.field, (use.node.lineno, use.node.col_offset))
        self.fields.sort(key=lambda item: first.get(item.name, (0, 0)))
        for channel in self.channels:
            channel.fields.sort(key=lambda item: first.get(item.name, (0, 0)))
        self.shapes: dict[str, Shape] = {}
        self.records: dict[str, Record] = {}
        for item in self.fields:
            if isinstance(item.value.ref, Inst) and not item.split:
                if len(self.sites) != 1 or len(self.channels) != 1:
                    raise CannotPlan("several forwards, or jvp as well, have to do with it", "object", item.name)
                self.records[item.name] = records.record_of(item, self.family.file.project)
            if item.container:
                if len(self.sites) != 1:
                    raise CannotPlan("several forwards build it", "several containers", item.name)
                if len(self.channels) != 1:
                    raise CannotPlan("both backward and jvp read the container", "container in jvp", item.name)
                site = self.sites[0]
                kinds = Kinds(self.family.file.project, self.family.file.module, site.flow)
                if any(kinds.live(pair.value, site.routine.receiver) for pair in site.pairs(item.name)):
                    raise CannotPlan(
                        "it is a container that lies in another object, which may change it before backward",
                        "shared container",
                        item.name,
                    )
                shape = containers.shape_of(item, site, kinds.of)
                if shape.mixed:
                    self.check_rebuilt(item)
                self.shapes[item.name] = shape
        self.counted = any(self.needs_counts(channel) for channel in self.channels)
        self.counts: dict[str, str] = {}

    def check_rebuilt(self, item: Field) -> None:
        """Raise CannotPlan where backward relies on the very container: it gets a new one each time it runs."""
        for reader in self.readers():
            for use in (*reader.routine.of("store", item.name), *reader.routine.of("delete", item.name)):
                statement = reader.flow.statement(use.node)
                value = getattr(statement, "value", None)
                if not isinstance(statement, ast.Delete) and not containers.is_none(value):
                    raise CannotPlan(f"backward sets it anew (line {use.node.lineno})", "mixed container", item.name)

    def needs_counts(self, channel: Channel) -> bool:
        """Whether one ``*name`` in the unpacking cannot tell the runs of tensors from each other and the rest."""
        runs = [shape for shape in self.shapes.values() if shape.parts is None]
        if len(runs) != 1:
            return bool(runs)
        lists: list[list[ast.expr]] = [
            u.node.args for s in self.sites for u in s.routine.of("save", channel.api) if isinstance(u.node, ast.Call)
        ]
        if any(reader.lent for reader in channel.readers):
            return True
        for reader in channel.readers:
            uses = reader.routine.of("saved")
            branches = any(not reader.flow.is_top(reader.flow.statement(use.node)) for use in uses)
            if any(shape.mixed for shape in runs) and (len(uses) > 1 or branches):
                return True
            for use in uses:
                statement = reader.flow.statement(use.node)
                target = statement.targets[0] if isinstance(statement, ast.Assign) else None
                plain = isinstance(target, (ast.Tuple, ast.List)) and getattr(statement, "value", None) is use.node
                if not plain or (len(uses) > 1 and not reader.dominated([reader.flow.statement(u.node) for u in uses])):
                    return True
                assert isinstance(target, (ast.Tuple, ast.List))
                lists.append(target.elts)
        return any(isinstance(item, ast.Starred) for items in lists for item in items)

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

    def behind_last_write(self, site: Site, channel: Channel, indices: list[int]) -> Placement:
        """The placement behind these statements, and behind the last change of a container."""
        changes = [containers.ready(self.shapes[i.name], site) for i in channel.fields if i.container]
        return site.placement(channel.api, [*indices, *changes])

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
        self.reserve_names(moved)
        for site in self.sites:
            own: dict[str, list[Slot]] = {}
            place = max(placements[id(site)].values(), key=lambda p: (p.kind == "collect", p.index))
            for item in moved:
                if not site.writes(item.name):
                    own[item.name] = [Slot("None", item.name)]
                    if item.split:
                        site.counts.append(f"{site.routine.receiver}.{item.name} = None")
                elif item.name in self.records:
                    record = self.records[item.name]
                    record.replace = self.function(site, "dataclasses", "replace")
                    records.take_out(record, site, place)
                    own[item.name] = record.slots
                elif item.container:
                    shape = shapes[item.name]
                    only = self.tensor_class(site) if shape.mixed else ""
                    containers.take_apart(shape, site, place, attributes, only)
                    own[item.name] = shape.slots
                    if self.counted and shape.mixed:
                        rest = f"{site.routine.receiver}.{item.name}"
                        self.count(site, item.name, f"{rest} or ()" if shape.optional else rest, attributes)
                    elif self.counted and shape.parts is None:
                        self.count(site, item.name, own[item.name][0].code, attributes)
                else:
                    only = self.tensor_class(site) if item.split else ""
                    stays = partial(_unless, only) if only else None
                    own[item.name] = [Slot(site.local(item.name, place, stays=stays), item.name, only=only)]
            codes = {slot.code for items in own.values() for slot in items if not slot.only}
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

    def put_back(self, reader: Reader, record: Record, bound: dict[str, str]) -> list[str]:
        """Write the backward side of an object; the names to unpack its tensors to."""
        key = record.item.name
        if not reader.routine.of("load", key) and not self.read_below(reader, key):
            reader.replace(key, key)
            return ["_"] * len(record.slots)
        names: list[str] = []
        for slot in record.slots:
            names.append(reader.flow.fresh(slot.name, (*reader.taken, key)))
            reader.taken.add(names[-1])
        local = reader.bind(key)
        bound[key] = local
        reader.lines.append(records.put_back(record, reader.routine.receiver, names, local))
        return names

    def count(self, site: Site, name: str, local: str, attributes: set[str]) -> None:
        """Keep the length of a run on ctx."""
        attribute = f"{plain_name(name)}_count"
        while attribute in attributes:
            attribute += "_"
        attributes.add(attribute)
        self.counts[name] = attribute
        site.counts.append(f"{site.routine.receiver}.{attribute} = len({local})")

    def keys(self, channel: Channel, slots: dict[str, list[Slot]]) -> list[str]:
        """The order of the slots: fields, inputs of slices, then the run of tensors (which must be last)."""
        names = [item.name for item in channel.fields if item.name in slots]
        names += [key for key in slots if key.startswith("=")]
        runs = [name for name in names if any(slot.star for slot in slots[name])]
        return [name for name in names if name not in runs] + runs

    def front(self, channel: Channel) -> bool:
        """Whether new tensors go in front of the present ones: behind a ``*run`` nothing may follow."""
        if self.counted:
            return True
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
        return last

    def needed(self, reader: Reader, slot: Slot, name: str, inputs: dict[str, str]) -> str:
        """The name that a slot is unpacked to: a real one where a slice needs the tensor."""
        if slot.star or slot.code not in self.wanted:
            return name
        if name == "_":
            name = reader.flow.fresh(slot.name, reader.taken)
            reader.taken.add(name)
        inputs[slot.code] = name
        return name

    def write_backward(
        self, channel: Channel, slots: dict[str, list[Slot]], slices: dict[str, Slice], shapes: dict[str, Shape]
    ) -> None:
        """Write all readers of a channel."""
        saved_before = any(site.routine.of("save", channel.api) for site in self.sites)
        by_name = {item.name: item for item in channel.fields}
        for reader in channel.readers:
            read = f"{reader.routine.receiver}.{self.read}"
            names: list[str] = []
            bound: dict[str, str] = {}
            inputs = dict(self.saved_names) if slices else {}
            self.wanted = {tensor for found in slices.values() for tensor in found.tensors}
            if inputs:
                reader.taken.update(inputs.values())
            for key in self.keys(channel, slots):
                if key.startswith("="):
                    local = reader.flow.fresh(key[1:], reader.taken)
                    reader.taken.add(local)
                    inputs[key[1:]] = local
                    names.append(local)
                elif key in self.records:
                    names += self.put_back(reader, self.records[key], bound)
                elif by_name[key].container:
                    own = containers.put_together(shapes[key], reader, self.read_below(reader, key))
                    if key in reader.whole:
                        bound[key] = reader.whole[key]
                    names += [
                        self.needed(reader, slot, name, inputs) for slot, name in zip(slots[key], own, strict=True)
                    ]
                elif reader.routine.of("load", key) or self.read_below(reader, key):
                    wanted = slots[key][0].code if len(self.sites) == 1 else key
                    local = reader.bind(key, wanted if wanted.isidentifier() else key)
                    names.append(local)
                    bound[key] = local
                    if by_name[key].split:
                        kept = f"{reader.routine.receiver}.{key}"
                        reader.lines.append(assigned(local, f"{kept} if {local} is None else {local}"))
                    else:
                        inputs[slots[key][0].code] = local
                else:
                    reader.replace(key, key)
                    names.append(self.needed(reader, slots[key][0], "_", inputs))
            if slices:
                self.write_slices(reader, slices, inputs, bound)
            self.hand_down(reader, bound)
            if not reader.routine.of("saved") and saved_before and not names and reader.lines:
                raise CannotPlan("what is saved is not read back in backward", "not read back")
            if self.counted:
                runs = [key for key in self.keys(channel, slots) if any(slot.star for slot in slots[key])]
                counts = [(self.counts[key], shapes[key].mutable) for key in runs]
                reader.counted(names, counts, read, saved_before)
            else:
                reader.unpack(names, self.fronts[channel.api], read, saved_before)


def _unless(kind: str, local: str) -> str:
    """A value where it is not of a class, else None."""
    return f"None if isinstance({local}, {kind}) else {local}"
