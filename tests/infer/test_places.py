"""The places of ``*args`` and ``**kwargs``, wherever slices, copies, dictionaries and calls carry them."""

from __future__ import annotations

import pytest

from tests.infer.judging import classes, function, judged


def of(forward: str, reads: str, signature: str, module: str = "", backward: str = "grad") -> dict[str, str]:
    return classes(function(forward, reads, signature, module, backward))


SORTED_OUT = """
def sorted_out(names, given):
    rest = given[: len(given) - len(names)]
    return rest, dict(zip(names, given[len(given) - len(names) :]))
"""


def test_a_dictionary_of_the_last_arguments_is_judged_by_key() -> None:
    body = """
    args, options = sorted_out(names, given)
    ctx.x, ctx.groups = args
    ctx.scale, ctx.eps = options["scale"], options["eps"]
    return torch.nn.functional.group_norm(ctx.x, ctx.groups, weight=ctx.scale, eps=ctx.eps)
    """
    assert of(body, "x groups scale eps", "names, *given", SORTED_OUT) == {
        "x": "RECOMPUTE",
        "groups": "SAFE",
        "scale": "RECOMPUTE",
        "eps": "SAFE",
    }


@pytest.mark.parametrize("keep", ["tuple(given)", "list(given)", "given[:]", "given[0:]", "given[: len(given)]"])
def test_copies_and_beginnings_keep_the_places(keep: str) -> None:
    body = f"parts = {keep}\nctx.x, ctx.n = parts[0], parts[1]\nreturn ctx.x.exp().view(ctx.n)"
    assert of(body, "x n", "*given") == {"x": "RECOMPUTE", "n": "SAFE"}


@pytest.mark.parametrize(
    ("cut", "x", "n"),
    [
        ("given[1:]", "parts[0]", "parts[1]"),
        ("given[2:]", "given[1]", "parts[0]"),
        ("given[:3]", "parts[1]", "parts[2]"),
        ("given[-2:]", "parts[0]", "parts[1]"),
        ("given[where:]", "parts[0]", "parts[1]"),
        ("given", "parts[-2]", "parts[-1]"),
    ],
)
def test_places_are_counted_from_where_a_slice_begins(cut: str, x: str, n: str) -> None:
    body = f"parts = {cut}\nx, n = {x}, {n}\nctx.x, ctx.n = x, n\nreturn x.exp().view(n)"
    assert of(body, "x n", "where, *given") == {"x": "RECOMPUTE", "n": "SAFE"}


def test_the_same_place_is_one_whatever_slice_it_is_taken_from() -> None:
    body = "use(given[2].contiguous())\nctx.table = given[1:][1]\nctx.n = given[1]\nreturn x.view(given[1])"
    assert of(body, "table n", "x: Tensor, *given") == {"table": "RECOMPUTE", "n": "SAFE"}


def test_names_behind_a_star_are_places_too() -> None:
    body = "*tensors, n = given\nctx.n = n\nctx.save_for_backward(*tensors)\nreturn tensors[0].view(n)"
    assert of(body, "n", "*given") == {"n": "SAFE"}


def test_callers_speak_for_places_from_behind() -> None:
    module = "def wrap(x, t):\n    return F.apply(x, t.float(), 3)\n"
    body = "ctx.last, ctx.before = given[-1], given[-2]\nreturn x * 2"
    assert of(body, "last before", "x: Tensor, *given", module) == {"last": "SAFE", "before": "RECOMPUTE"}


def test_a_helper_that_is_handed_the_stars_names_their_places() -> None:
    module = """
    def normal(x, weight, bias=None, stride=1, mode="zeros"):
        return (x, weight), {"bias": bias, "stride": stride, "mode": mode}
    """
    body = """
    args, more = normal(*given, **options)
    ctx.weight, ctx.bias = args[1], more["bias"]
    ctx.stride, ctx.mode = more["stride"], more["mode"]
    use(torch.mm(*args), ctx.bias.contiguous())
    return args[0] * 2
    """
    assert of(body, "weight bias stride mode", "*given, **options", module) == {
        "weight": "RECOMPUTE",
        "bias": "RECOMPUTE",
        "stride": "SAFE",
        "mode": "SAFE",
    }


def test_an_operator_that_is_handed_the_stars_says_what_they_are() -> None:
    body = "ctx.n, ctx.w, ctx.eps = given[0], given[1], options['eps']\nreturn torch.layer_norm(x, *given, **options)"
    assert of(body, "n w eps", "x, *given, **options") == {"n": "SAFE", "w": "RECOMPUTE", "eps": "SAFE"}


def test_what_is_put_in_later_comes_back() -> None:
    body = "options['scale'] = x.abs()\nctx.scale, ctx.mode = options['scale'], options['mode']\nreturn x"
    assert of(body, "scale mode", "x: Tensor, **options") == {"scale": "RECOMPUTE", "mode": "SAFE"}


def test_something_at_an_unknown_key_ends_the_judging_by_key() -> None:
    body = "options[name] = x.abs()\nctx.other = options['other']\nreturn x"
    assert of(body, "other", "x: Tensor, name, **options") == {"other": "RECOMPUTE"}


def test_a_star_of_which_nothing_is_known_may_hold_tensors() -> None:
    body = "ctx.rest = tuple(given)\nreturn x"
    field = judged(function(body, "rest", "x: Tensor, *given"))["rest"]
    assert (field.cls, field.confidence) == ("RECOMPUTE", "low")
