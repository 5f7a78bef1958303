"""The hazards H1 to H20: what each is, and what each check must say of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cells:
    """What the checks say: the five dynamic ones in the order of ``hazards.CHECKS``, and the codes of the linter."""

    dynamic: tuple[str, ...]
    static: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hazard:
    """One pattern. ``promise``: a cell for each dynamic check, None where nothing is promised.

    The third cell, overwrite, is promised only of layers that keep nothing by contract: the others mix saved values
    with live ones by right, and the check does not apply.

    ``code`` is the rule that must report the planted fault, empty where none may, None where none can.
    """

    id: str
    fixture: str
    pattern: str
    promise: tuple[str | None, str | None, str | None, str | None, str | None]
    code: str | None
    note: str = ""


HAZARDS = (
    Hazard(
        "H1",
        "h01_input_alias",
        "input alias kept, live input ignored",
        ("red", "green", "red", "green", "green"),
        "CL101",
        "a graph pins its live inputs, and an alias of one is kept alive with it; the reset check leaves the input "
        "unpinned and hands backward a copy.",
    ),
    Hazard(
        "H2",
        "h02_intermediate",
        "own intermediate kept",
        ("red", "green", None, "green", "error"),
        "CL103",
    ),
    Hazard(
        "H3",
        "h03_cache_preferred",
        "cache preferred to the live input",
        ("red", "green", "red", "green", "green"),
        "CL202",
    ),
    Hazard(
        "H4",
        "h04_cache_fallback",
        "cache as the fallback",
        ("green, red without inputs", "green", "green", "green", "green"),
        "CL101",
    ),
    Hazard(
        "H5",
        "h05_live_and_stale",
        "live input mixed with stale statistics",
        ("red", "green", "red", "green", "error"),
        "CL102",
    ),
    Hazard(
        "H6",
        "h06_unset_on_fused_path",
        "unset on a fused path",
        (
            "error (green in the other mode)",
            "error (green in the other mode)",
            None,
            "error (green in the other mode)",
            "error (green in the other mode)",
        ),
        "CL203",
        "the first mode runs the fused path, the other one does not.",
    ),
    Hazard(
        "H7",
        "h07_stale_from_last_step",
        "stale value of the step before",
        ("green, red in step 2", "red", None, "green", "green"),
        "CL203",
        "the graph runs one step.",
    ),
    Hazard(
        "H8",
        "h08_dead_field",
        "dead field",
        ("green", "green", "green", "green", "green"),
        "CL201",
        "no check may go red: the field is waste, not a fault. CL201 is a warning and counts in no class.",
    ),
    Hazard("H9", "h09_hidden_in_child", "composite hides device state", ("red", None, None, "green", "error"), "CL110"),
    Hazard(
        "H10",
        "h10_saver_not_forwarded",
        "saver not handed to a child",
        ("red", None, None, "green", "error"),
        "CL204",
        "a builder wires every child that it reaches; the fixture makes its child after that.",
    ),
    Hazard(
        "H11",
        "h11_cross_step_state",
        "state over steps in memory of one step",
        ("green, red in step 2", "red", None, "green", "green"),
        None,
        "the graph runs one step. CL107 looks at what backward reads, and this state is read by the next forward alone.",
    ),
    Hazard("H12", "h12_container", "container of tensors", ("red", None, None, "green", "error"), "CL106"),
    Hazard("H13", "h13_helper_hop", "written and read in helpers", ("red", "green", None, "green", "error"), "CL103"),
    Hazard(
        "H14",
        "h14_host_values",
        "host values",
        ("green", "green", None, "green", "green"),
        "",
        "no fault: nothing may be reported.",
    ),
    Hazard(
        "H15",
        "h15_random_mask",
        "random mask, stale after eval",
        ("red", "red", None, "green", "error"),
        "CL105",
        "gradcheck is green because the harness seeds every draw.",
    ),
    Hazard(
        "H16",
        "h16_sub_range_view",
        "view kept, copy registered",
        ("red", None, None, "green", "error"),
        "CL103",
        "where a view has no owner to pin, registering it protects nothing. Here pins go to the owning storage, so "
        "that fault can't be planted; the fixture registers copies, and is red with a saver all the same.",
    ),
    Hazard(
        "H17",
        "h17_unbalanced_pins",
        "unbalanced pins",
        ("red", None, None, "green", "red"),
        "CL103",
        "red by the pin that is left at the end, not by a value. A saver can't unbalance its pins: the fixture pins by "
        "hand, and the linter reports that its field is not registered.",
    ),
    Hazard("H18", "h18_closure", "closure captures an intermediate", ("red", None, None, "green", "error"), "CL109"),
    Hazard(
        "H19",
        "h19_wrong_operand",
        "wrong live operand for a child",
        ("green", "green", "green", "red", "green"),
        None,
        "nothing is kept, so neither the linter nor poison sees anything: a gradient check of the composite does.",
    ),
    Hazard(
        "H20",
        "h20_arity",
        "backward's arity differs",
        ("green", None, None, "error", "error"),
        None,
        "called by hand with the input that it takes the layer looks right; gradcheck and the graph call it as the "
        "protocol says.",
    ),
)
