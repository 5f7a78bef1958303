"""What is written: attributes, items, storages."""

from __future__ import annotations

import ast

from cachelint.collect.log import (
    Mutation,
    Write,
)
from cachelint.index.walk import code_of
from cachelint.infer.core import OUTSIDE
from cachelint.infer.scopes import Scopes
from cachelint.infer.values import (
    CHEAP,
    CONST,
    DEVICE,
    HOST,
    UNKNOWN,
    WORKSPACE,
    Cls,
    Inst,
    Mod,
    Recv,
    Seq,
    Value,
    Why,
    carried,
    join,
    replace,
)


class Effects(Scopes):
    """Writes to the receiver, to objects, containers and storages."""

    def set_attribute(
        self, base: Value, name: str, value: Value, node: ast.Attribute | ast.Call, augmented: bool
    ) -> None:
        """``base.name = value``."""
        ref = base.ref
        if isinstance(ref, Recv):
            self.write(name, value, node, augmented)
        elif isinstance(ref, Inst):
            old = ref.attrs.get(name)
            ref.attrs[name] = value if old is None or not self.path else join(old, value)
        elif isinstance(ref, Cls):
            self.log.stores.append(self.outside(f"{ref.info.name}.{name}", node, value))
            self.class_attrs[(id(ref.info), name)] = value.tagged("side-channel")
        elif isinstance(ref, Mod):
            self.log.stores.append(self.outside(name, node, value))
            self.module_values[(ref.info.path, name)] = value.tagged("side-channel")
        elif base.kinds & DEVICE and name == "data":
            self.mutated(node, base, "assignment to .data", node)
            # The storage is the other's from here on: nothing is left to be filled.
            self.fill(base, replace(value, cost=max(value.cost, CHEAP)), node)
        elif (
            "handle" in base.tags and ref is None and isinstance(node, ast.Attribute) and carried(value).kinds & DEVICE
        ):
            # An object of a class outside, which holds a tensor from here on.
            if isinstance(node.value, ast.Name) and node.value.id in self.frame.env:
                self.frame.env[node.value.id] = replace(base, ref=Inst(OUTSIDE, {name: value}))

    def write(self, name: str, value: Value, node: ast.AST, augmented: bool = False) -> None:
        """A write to the receiver."""
        log = self.log
        log.writes.append(
            Write(
                name,
                node,
                value,
                self.frame.module.path,
                self.frame.name,
                log.phase,
                self.tick(),
                self.path,
                frozenset(self.guards),
            )
        )
        log.attrs[name] = value

    def grown(self, seq: Seq, value: Value, node: ast.AST) -> None:
        """Note what forward puts into a container that the constructor made: the attribute keeps it from then on."""
        field = self.owned.get(id(seq)) if self.owned and self.log.phase == "forward" else None
        if field is None:
            return
        why = self.why(node, f"put into `{field}`, a container of the constructor's", value.why)
        held = Value(HOST, ref=Seq(None, replace(value, why=why), mutable=True))
        current = self.log.attrs.get(field)
        self.write(field, held, node)
        self.log.writes[-1].grown = True
        if current is None:
            del self.log.attrs[field]  # it stays the constructor's container
        else:
            self.log.attrs[field] = current

    def set_item(self, base: Value, key: Value, value: Value, node: ast.Subscript) -> None:
        """``base[key] = value``."""
        ref = base.ref
        if isinstance(ref, Seq):
            self.grown(ref, value, node)
            if ref.shared:
                self.log.stores.append(self.outside(ref.shared.rpartition(".")[2], node, value))
                if value.kinds & DEVICE:
                    shared = Why(
                        self.frame.module.path,
                        node.lineno,
                        f"kept in `{ref.shared.rpartition('.')[2]}`, which every call shares",
                        value.why,
                    )
                    value = replace(value, cost=WORKSPACE, roots=frozenset((f"g:{ref.shared}",)), why=shared)
                ref.put(value)
                return
            literal = key.const
            if isinstance(literal, (str, int)) and not isinstance(literal, bool):
                if ref.items is not None and isinstance(literal, int) and -len(ref.items) <= literal < len(ref.items):
                    ref.items[literal] = value if not self.path else join(ref.items[literal], value)
                    return
                if (ref.keys is None and ref.items is None) or ref.keys is not None:
                    ref.keys = ref.keys if ref.keys is not None else {}
                    ref.keys[literal] = value
                    return
            ref.put(value)
        elif base.kinds & (DEVICE | UNKNOWN):
            self.mutated(node, base, "item assignment", node.value)
            self.fill(base, value, node)

    def fill(self, buffer: Value, value: Value, node: ast.AST) -> None:
        """A buffer of our own receives content."""
        for root in buffer.roots:
            if root.startswith("n"):
                old = self.heap.get(root)
                content = Value(
                    DEVICE, max(value.cost, CONST) if value.kinds & (DEVICE | UNKNOWN) else CONST, value.deps
                )
                content = replace(content, why=self.why(node, "filled here", value.why))
                self.heap[root] = content if old is None else join(old, content)

    def mutated(self, node: ast.AST, value: Value, how: str, target: ast.AST) -> None:
        """Note an in-place write."""
        self.log.mutations.append(
            Mutation(
                node,
                value,
                how,
                code_of(target) if isinstance(target, (ast.Name, ast.Attribute)) else "",
                self.frame.module.path,
                self.frame.name,
                self.log.phase,
                self.tick(),
                self.path,
            )
        )
