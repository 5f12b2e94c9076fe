"""How a dashboard is built here: queries over the catalog's families, panels, rows, variables.

Panels have a title, a description that says what to do, and a unit; every query of ours goes
through the variable `$job` and counts two exporters of one store once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from grafana_foundation_sdk.builders import common as commons
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.builders import prometheus, stat, table, text, timeseries
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.dashboard import DataSourceRef, GridPos, Threshold
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

from tallystick.metrics.catalog import Family

RUNBOOKS = "https://tallystick.example/runbooks/"
"""What `tallystick rules --runbooks` replaces."""

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
JOB = 'job=~"$job"'
WIDTH = 24
"""Columns of Grafana's grid."""

Panel: TypeAlias = stat.Panel | table.Panel | text.Panel | timeseries.Panel


@dataclass(frozen=True)
class Query:
    """One line, or family of lines, of a panel."""

    expr: str
    legend: str = ""
    exemplars: bool = False
    """Whether the actions behind the counts are shown as points."""


@dataclass(frozen=True)
class Row:
    """A row of panels, each with its width; they share one height."""

    title: str
    panels: Sequence[tuple[int, Panel]]
    height: int = 8
    collapsed: bool = False


@dataclass(frozen=True)
class Board:
    """A whole dashboard."""

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    variables: Sequence[boards.QueryVariable] = field(default_factory=tuple)
    links: Sequence[tuple[str, str]] = ()
    """Title and uid of dashboards that this one leads to."""


# --- queries -------------------------------------------------------------------------------------


def series(family: Family | str, *matchers: str, suffix: str = "") -> str:
    """The selector of a family, as the chosen exporters show it."""
    name = family if isinstance(family, str) else family.name
    return f"{name}{suffix}{{{', '.join([JOB, *matchers])}}}"


def once(expr: str) -> str:
    """The same, where two exporters of one store count once."""
    return f"max without (instance) ({expr})"


def total(by: str, expr: str) -> str:
    """The sum by a label, over exporters that count once."""
    return f"sum by ({by}) ({once(expr)})"


def per_minute(by: str, family: Family, *matchers: str) -> str:
    """How often a counter goes up in a minute, by a label."""
    return f"60 * {total(by, f'rate({series(family, *matchers)}[$__rate_interval])')}"


def lately(by: str, family: Family, *matchers: str) -> str:
    """How much a counter went up in the time that is shown, by a label."""
    return total(by, f"increase({series(family, *matchers)}[$__range])")


# --- panels --------------------------------------------------------------------------------------


def numbers(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    steps: Sequence[tuple[float | None, str]] = ((None, "green"),),
    nothing: str = "0",
    whole: bool = False,
) -> stat.Panel:
    """The latest value of each series, coloured by `steps` (from which value, which colour), as
    a `whole` number if it is a count that Prometheus extrapolates."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .no_value(nothing)
        .thresholds(_thresholds(steps))
        .color_mode(common.BigValueColorMode.BACKGROUND)
        .graph_mode(common.BigValueGraphMode.NONE)
        .reduce_options(commons.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    if whole:
        panel.decimals(0)
    for target in _targets(queries, instant=True):
        panel.with_target(target)
    return panel


def lines(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    stacked: bool = False,
    top: float | None = None,
) -> timeseries.Panel:
    """Series over time, from zero up; as stacked areas, or up to a fixed `top`."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .legend(
            commons.VizLegendOptions()
            .show_legend(True)
            .placement(common.LegendPlacement.BOTTOM)
            .display_mode(common.LegendDisplayMode.LIST)
            .calcs([])
        )
        .tooltip(
            commons.VizTooltipOptions()
            .mode(common.TooltipDisplayMode.MULTI)
            .sort(common.SortOrder.DESCENDING)
        )
    )
    if top is not None:
        panel.max(top)
    if stacked:
        panel.fill_opacity(40).stacking(
            commons.StackingConfig().mode(common.StackingMode.NORMAL).group("A")
        )
    for target in _targets(queries, instant=False):
        panel.with_target(target)
    return panel


def listed(
    title: str, description: str, *queries: Query, unit: str = "short", nothing: str
) -> table.Panel:
    """One line for each series: its labels, and its latest value."""
    hide = dict.fromkeys(("Time", "__name__", "job", "instance", "alertstate"), True)
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .no_value(nothing)
        .frame_index(0)
        .show_header(True)
        .with_transformation(
            dashboard.DataTransformerConfig(id_val="organize", options={"excludeByName": hide})
        )
    )
    for target in _targets(queries, instant=True):
        panel.with_target(target.format(PromQueryFormat.TABLE))
    return panel


def words(title: str, markdown: str) -> text.Panel:
    """A text for people."""
    return text.Panel().title(title).mode(TextMode.MARKDOWN).content(markdown)


def _targets(queries: Sequence[Query], *, instant: bool) -> list[prometheus.Dataquery]:
    found = []
    for number, query in enumerate(queries):
        target = (
            prometheus.Dataquery()
            .expr(query.expr)
            .legend_format(query.legend or "__auto")
            .ref_id(chr(ord("A") + number))
            .datasource(SOURCE)
        )
        found.append(target.instant() if instant else target.range().exemplar(query.exemplars))
    return found


def _thresholds(steps: Sequence[tuple[float | None, str]]) -> boards.ThresholdsConfig:
    return (
        boards.ThresholdsConfig()
        .mode(dashboard.ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=value, color=color) for value, color in steps])
    )


# --- the whole -----------------------------------------------------------------------------------


def variable(name: str, label: str, query: str) -> boards.QueryVariable:
    """Values of a label to choose from, all of them at first."""
    return (
        boards.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .current(dashboard.VariableOption(selected=True, text="All", value="$__all"))
    )


def build(board: Board) -> dashboard.Dashboard:
    """Put the rows one below the other, and give each panel its place and its id."""
    made = (
        boards.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(["tallystick"])
        .readonly()
        .timezone("browser")
        .time("now-3h", "now")
        .refresh("30s")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .with_variable(
            boards.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
        .annotation(_alerts())
    )
    for one in board.variables:
        made.with_variable(one)
    for title, uid in board.links:
        made.link(
            boards.DashboardLink(title)
            .type(dashboard.DashboardLinkType.LINK)
            .url(f"/d/{uid}")
            .keep_time(True)
            .include_vars(True)
        )
    number, y = 0, 0
    for row in board.rows:
        number += 1
        head = boards.Row(row.title).id(number).grid_pos(GridPos(h=1, w=WIDTH, x=0, y=y))
        made.with_row(head)
        y, x = y + 1, 0
        for width, panel in row.panels:
            number += 1
            made.with_panel(panel.id(number).grid_pos(GridPos(h=row.height, w=width, x=x, y=y)))
            x += width
        y += row.height
    return made.build()


def _alerts() -> boards.AnnotationQuery:
    """When which page was out, as marks in every panel."""
    return (
        boards.AnnotationQuery()
        .name("Pages")
        .datasource(SOURCE)
        .enable(True)
        .icon_color("red")
        .expr('ALERTS{alertname=~"Tallystick.*", alertstate="firing", severity="critical"}')
    )
