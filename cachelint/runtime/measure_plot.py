"""Live bytes over the operators, the peaks marked, and what was alive there below: SVG by hand, PNG by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from cachelint.runtime.measure import MeasureError, Measurement, Owned
from cachelint.runtime.measure_text import where
from cachelint.runtime.meter_report import MeterReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 960, 560
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 64, 320
"""Of the upper panel, in pixels; the live sets stand below it."""
COLOURS = {"before": "#b5432a", "after": "#1f6f8b"}
BANDS = ("#d8dee6", "#c3ccd8")
FLAGGED = "#e8a33d"
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def unit_of(largest: int) -> tuple[int, str]:
    """The unit in which ``largest`` bytes have one to four digits."""
    return next(((size, name) for size, name in UNITS if largest >= size), UNITS[-1])


def ticks(largest: float) -> list[float]:
    """Up to nine round values from 0 to ``largest``."""
    if largest <= 0:
        return [0.0]
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(power * factor for factor in (0.2, 0.25, 0.5, 1, 2) if largest <= 8 * power * factor)
    return [step * index for index in range(int(largest / step + 1e-9) + 1)]


def versions(found: Measurement) -> list[tuple[str, str, MeterReport, tuple[Owned, ...]]]:
    """(name, label, report, owners) of each version that was measured."""
    shown = [("before", found.before, found.pairs[0].before, found.owned_before)]
    if found.after is not None:
        shown.append(("after", found.after, found.pairs[0].after, found.owned_after))
    return shown


def svg(found: Measurement) -> str:
    """The plot as an SVG document."""
    return "\n".join(_svg(found)) + "\n"


def _svg(found: Measurement) -> Iterator[str]:
    shown = versions(found)
    largest = max(report.peak for _, _, report, _ in shown)
    longest = max(len(report.timeline) for _, _, report, _ in shown)
    size, unit = unit_of(largest)
    title = f"Live bytes over the operators: {' and '.join(label for _, label, _, _ in shown)}"
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="12">'
    yield f"<title>{escape(title)}</title>"
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    yield from _axes(largest, longest, size, unit)
    for row, (name, label, report, _) in enumerate(shown):
        colour = COLOURS[name]
        legend = f"{name if found.after is not None else 'measured'}: {label}, peak {report.peak:,} bytes"
        yield f'<rect x="{LEFT}" y="{18 + 20 * row}" width="14" height="4" fill="{colour}"/>'
        yield f'<text x="{LEFT + 20}" y="{24 + 20 * row}">{escape(legend)}</text>'
        # The first line is the broader one, so that both are seen where they lie on each other.
        stroke = f'stroke="{colour}" stroke-width="{4 - 2.5 * row}" stroke-opacity="{0.5 + 0.5 * row}"'
        yield f'<path d="{_path(report, largest, longest)}" fill="none" {stroke}/>'
    for row, (name, _, report, _) in enumerate(shown):
        yield from _mark(name, report, largest, longest, row)
    for row, (name, _, report, owned) in enumerate(shown):
        yield from _live(name, report, owned, largest, BOTTOM + 70 + 84 * row)
    yield "</svg>"


def _x(index: float, longest: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * index / max(longest, 1)


def _y(value: float, largest: int) -> float:
    return BOTTOM - (BOTTOM - TOP) * value / max(largest, 1)


def _axes(largest: int, longest: int, size: int, unit: str) -> Iterator[str]:
    yield f'<path d="M{LEFT} {TOP}V{BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#555"/>'
    for value in ticks(largest / size):
        y = _y(value * size, largest)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    yield f'<text x="{LEFT - 8}" y="{TOP - 8}" text-anchor="end">{unit}</text>'
    for tick in ticks(longest):
        if tick == int(tick):
            x = _x(tick, longest)
            yield f'<text x="{x:.1f}" y="{BOTTOM + 16}" text-anchor="middle">{tick:g}</text>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{BOTTOM + 32}" text-anchor="middle">operator calls</text>'


def _path(report: MeterReport, largest: int, longest: int) -> str:
    """A step line: each operator's level holds until the next one."""
    steps = [f"M{_x(0, longest):.1f} {_y(report.start, largest):.1f}"]
    for event in report.timeline:
        steps.append(f"H{_x(event.index + 0.5, longest):.1f}V{_y(event.current, largest):.1f}")
    steps.append(f"H{_x(len(report.timeline), longest):.1f}")
    return "".join(steps)


def _mark(name: str, report: MeterReport, largest: int, longest: int, row: int) -> Iterator[str]:
    index = report.peak_event.index + 0.5 if report.peak_event is not None else 0
    x, y = _x(index, longest), _y(report.peak, largest)
    title = f"<title>{escape(where(report))}</title>"
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{COLOURS[name]}">{title}</circle>'
    anchor, shift = ("end", -9) if x > WIDTH / 2 else ("start", 9)
    # One below the other where both peaks lie close together.
    text = f"peak: {_briefly(report)}"
    yield (
        f'<text x="{x + shift:.1f}" y="{y + 4 + 16 * row:.1f}" text-anchor="{anchor}" fill="{COLOURS[name]}" '
        f'stroke="white" stroke-width="3" paint-order="stroke">{escape(text)}</text>'
    )


def _briefly(report: MeterReport) -> str:
    if report.peak_event is None:
        return where(report)
    line = report.line
    place = f", {line.path.rpartition('/')[2]}:{line.line}" if line is not None else ""
    return _short(report.peak_event.site.op) + place


def _short(op: str) -> str:
    """``cat`` for ``aten.cat.default``."""
    return op.removeprefix("aten.").removesuffix(".default")


def _live(name: str, report: MeterReport, owned: Sequence[Owned], largest: int, top: int) -> Iterator[str]:
    """What was alive at the peak, as one bar on the scale of the upper panel turned on its side."""
    flagged = {each.storage.serial for each in owned if each.at_peak}
    note = ""
    if owned:
        note = " (flagged owners in orange)" if flagged else " (the flagged owners are not among them)"
    yield f'<text x="{LEFT}" y="{top - 6}" fill="{COLOURS[name]}">alive at the peak {name}{note}</text>'
    x = float(LEFT)
    for position, each in enumerate(report.live):
        width = (WIDTH - LEFT - RIGHT) * each.bytes / max(largest, 1)
        colour = FLAGGED if each.serial in flagged else BANDS[position % 2]
        label = each.owner or (_short(each.site.op) if each.site is not None else "")
        title = f"<title>{escape(f'{label}: {each.bytes:,} bytes, {each.dtype} {list(each.shape)}')}</title>"
        place = f'x="{x:.2f}" y="{top}" width="{width:.2f}" height="36"'
        yield f'<rect {place} fill="{colour}" stroke="white" stroke-width="0.5">{title}</rect>'
        if width > 7 * len(label) + 6:
            yield f'<text x="{x + width / 2:.1f}" y="{top + 22}" text-anchor="middle">{escape(label)}</text>'
        x += width


def save(found: Measurement, path: Path) -> None:
    """Write the plot: SVG, or PNG where matplotlib is installed.

    Raises:
        MeasureError: another ending, no matplotlib, or the file can't be written.
    """
    try:
        if path.suffix == ".svg":
            path.write_text(svg(found), encoding="utf-8")
        elif path.suffix == ".png":
            _png(found, path)
        else:
            raise MeasureError(f"{path}: a plot is a .svg or a .png")
    except OSError as error:
        raise MeasureError(f"{path}: can't be written: {error.strerror or error}") from error


def _png(found: Measurement, path: Path) -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MeasureError(
            f"{path}: a PNG needs matplotlib (pip install 'torch-cachelint[plot]'); or give a .svg"
        ) from error
    figure(found).savefig(path, dpi=120)


def figure(found: Measurement) -> Figure:
    """The same plot for matplotlib: the curves with their peaks, and the live sets as bars below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = versions(found)
    largest = max(1, *(report.peak for _, _, report, _ in shown))
    size, unit = unit_of(largest)
    page = Figure(figsize=(10, 5 + 0.8 * len(shown)), layout="constrained")
    FigureCanvasAgg(page)
    axes, bars = page.subplots(2, 1, height_ratios=(5, 0.8 * len(shown)))
    for row, (name, label, report, _) in enumerate(shown):
        levels = [report.start, *(event.current for event in report.timeline)]
        places = [0.0, *(event.index + 0.5 for event in report.timeline)]
        # The first line is the broader one, so that both are seen where they lie on each other.
        style = {"where": "post", "color": COLOURS[name], "label": f"{name}: {label}", "linewidth": 3 - 1.8 * row}
        axes.step(places, [level / size for level in levels], **style)
        index = report.peak_event.index + 0.5 if report.peak_event is not None else 0.0
        axes.plot([index], [report.peak / size], "o", color=COLOURS[name])
        late = index > len(report.timeline) / 2
        axes.annotate(
            f"peak: {_briefly(report)}",
            (index, report.peak / size),
            xytext=(-8 if late else 8, 8 - 16 * row),
            textcoords="offset points",
            ha="right" if late else "left",
            va="center",
            fontsize=8,
            color=COLOURS[name],
        )
    axes.set_ylim(0, 1.12 * largest / size)
    axes.set_xlabel("operator calls")
    axes.set_ylabel(f"live bytes, {unit}")
    axes.legend(fontsize=8, loc="lower right")
    for row, (_, _, report, owned) in enumerate(shown):
        flagged = {each.storage.serial for each in owned if each.at_peak}
        left = 0.0
        for position, each in enumerate(report.live):
            width = each.bytes / size
            colour = FLAGGED if each.serial in flagged else BANDS[position % 2]
            bars.barh(row, width, left=left, color=colour, edgecolor="white", linewidth=0.5)
            told = each.owner or (_short(each.site.op) if each.site is not None else "")
            if width > 0.011 * len(told) * largest / size:
                bars.text(left + width / 2, row, told, ha="center", va="center", fontsize=8)
            left += width
    bars.set_yticks(range(len(shown)), [name for name, *_ in shown])
    bars.invert_yaxis()
    bars.set_xlim(0, largest / size)
    note = " (flagged owners in orange)" if any(each.at_peak for *_, owned in shown for each in owned) else ""
    bars.set_xlabel(f"alive at the peak, {unit}{note}")
    return page
