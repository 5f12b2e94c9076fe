"""The verbs that look whether all is well here: doctor, alive."""

from collections import Counter

import typer
from rich.table import Table

from tallystick.cli.common import AsJson, app, console, without_types
from tallystick.cli.render import print_json, visible
from tallystick.jobs.checks.finding import Finding, Severity
from tallystick.jobs.doctor import Report, consult
from tallystick.jobs.settings import Settings
from tallystick.jobs.worker import worker_host

_STYLES = {
    Severity.REFUSE: "bold red",
    Severity.UNKNOWN: "bold magenta",
    Severity.WARN: "yellow",
    Severity.OK: "green",
}


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check server, clocks, client and keys; exit status 1 if a promise would not hold."""
    report = consult(Settings.load())
    if as_json:
        print_json(report)
    else:
        print_report(report)
    raise typer.Exit(int(report.refuses))


@app.command()
def alive(as_json: AsJson = False) -> None:
    """Exit with status 0 if a work-horse of this host lives: for the health check of a worker."""
    host = worker_host()
    with without_types() as tally:
        living = [name for name in tally.store.living() if name.rsplit(":", 1)[0] == host]
    if as_json:
        print_json({"host": host, "work_horses": living})
    else:
        console.print(f"{len(living)} work-horses of {host} live")
    raise typer.Exit(int(not living))


def print_report(report: Report) -> None:
    """A table of the findings, worst first, and the verdict in one line."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("found, why it matters, and the remedy", overflow="fold")
    for finding in report.findings:
        table.add_row(_severity(finding), finding.name, _told(finding))
    console.print(table)
    console.print(_verdict(report), soft_wrap=True)


def _severity(finding: Finding) -> str:
    if finding.waived:
        return "[bold black on yellow]WAIVED[/]"
    return f"[{_STYLES[finding.severity]}]{finding.severity}[/]"


def _told(finding: Finding) -> str:
    if finding.severity is Severity.OK:
        return f"[dim]{visible(finding.found)}[/]"
    return (
        f"[bold]{visible(finding.found)}[/]\n{visible(finding.why)}\n"
        f"[cyan]remedy:[/] {visible(finding.remedy)}"
    )


def _verdict(report: Report) -> str:
    count = Counter(f.severity for f in report.findings)
    waived = sum(finding.waived for finding in report.findings)
    parts = [
        (count[Severity.REFUSE], "refuse"),
        (count[Severity.UNKNOWN], "could not be read"),
        (count[Severity.WARN] - waived, "warn"),
        (waived, "waived: NOT SAFE"),
        (count[Severity.OK], "ok"),
    ]
    told = ", ".join(f"{number} {what}" for number, what in parts if number)
    word = "[bold red]refused[/]" if report.refuses else "[bold green]sound[/]"
    if waived and not report.refuses:
        word = "[bold yellow]tolerated[/]"
    return f"{word}: {told} ({visible(report.server)})"
