"""The names that the new code reads: the class of tensors, functions of the standard library, builtins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cachelint.fix.functions.fields import CannotPlan, Field
from cachelint.fix.functions.forward import Site
from cachelint.fix.functions.names import imported, tensor_class

if TYPE_CHECKING:
    from cachelint.fix.functions.assembly import Assembly


class Naming:
    """The part of an assembly that knows what the code around it calls things."""

    def tensor_class(self: Assembly, site: Site) -> str:  # type: ignore[misc]
        """The code for the class of tensors in a forward. Raises CannotPlan."""
        library = "paddle" if self.read.endswith("()") else "torch"
        found = tensor_class(self.family.file, site.routine.flow, library)
        if found is not None:
            return found
        if library in site.routine.flow.used or self.family.file.project.resolve(self.family.file.module, library):
            raise CannotPlan(f"`{library}` means something else in {site.routine.name}", "name taken")
        self.imports.add(library)
        return f"{library}.Tensor"

    def reserve_names(self: Assembly, moved: Sequence[Field]) -> None:  # type: ignore[misc]
        """Keep the names that the new code reads from being given to locals. Raises CannotPlan where one of them means
        something else."""
        told_apart = any(item.split or (item.name in self.shapes and self.shapes[item.name].mixed) for item in moved)
        if told_apart or self.counted:
            self.check_builtins()
        for site in self.sites:
            if told_apart:
                site.taken.add(self.tensor_class(site).partition(".")[0])
            if self.records:
                name = self.function(site, "dataclasses", "replace").partition(".")[0]
                site.taken.add(name)
                for reader in self.readers():
                    reader.taken.add(name)

    def check_builtins(self: Assembly) -> None:  # type: ignore[misc]
        """Raise CannotPlan where a builtin that the new code calls means something else."""
        flows = [*(site.flow for site in self.sites), *(reader.flow for reader in self.readers())]
        project, module = self.family.file.project, self.family.file.module
        for name in ("isinstance", "tuple", "list", "zip", "len"):
            own = any(name in flow.parameters or name in flow.bindings for flow in flows)
            if own or project.resolve(module, name) is not None:
                raise CannotPlan(f"`{name}` means something else in this file", "name taken")

    def function(self: Assembly, site: Site, module: str, name: str) -> str:  # type: ignore[misc]
        """The code for a function of the standard library, in forward and in backward. Raises CannotPlan."""
        flows = [site.flow, *(reader.flow for reader in self.readers())]
        found = {imported(self.family.file, flow, f"{module}.{name}", module) for flow in flows}
        if len(found) == 1 and None not in found:
            return str(found.pop())
        used = any(module in flow.used for flow in flows)
        if used or found != {None} or self.family.file.project.resolve(self.family.file.module, module):
            raise CannotPlan(f"`{module}` means something else in {site.routine.name}", "name taken")
        self.imports.add(module)
        return f"{module}.{name}"
