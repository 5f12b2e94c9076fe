"""`python -m tests.crash`: the whole matrix, or a part of it. Exit 1 on any violation."""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from tests.crash import matrix, plan, report, speed
from tests.crash.matrix import Task, Total

console = Console()
if not console.is_terminal:
    console = Console(width=140)


def main() -> int:
    """Run what is asked for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--cut", action="store_true", help="a representative smaller cut, in process")
    part.add_argument("--fast", action="store_true", help="the fast driver only")
    part.add_argument("--real", action="store_true", help="real processes only, zombies included")
    part.add_argument("--mutants", action="store_true", help="hunt the mutants")
    part.add_argument("--speed", action="store_true", help="measure how long recovery takes")
    parser.add_argument("--jobs", type=int, default=2, help="processes to use (2)")
    given = parser.parse_args()
    if given.mutants:
        return mutants(given.jobs)
    if given.speed:
        return speeds()
    whole = not (given.cut or given.fast or given.real)
    tasks: list[Task] = []
    if given.real or whole:
        tasks += [*matrix.frozen(), *matrix.slow()]
    if not given.real:
        tasks += matrix.fast(plan.cut() if given.cut else plan.whole())
    return run(tasks, given.jobs, keep=whole)


def run(tasks: list[Task], jobs: int, *, keep: bool) -> int:
    """Run the matrix, or a part of it, which is then not kept."""
    began, total = time.monotonic(), Total()
    columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task("crashing", total=len(tasks))
        for one in matrix.run(tasks, jobs):
            total.merge(one)
            progress.update(bar, advance=1, description=f"{total.scenarios:,} scenarios")
    total.woken.sort(key=lambda woken: str(woken.zombie))
    section = report.matrix_section(total, time.monotonic() - began)
    report.show_matrix(console, section)
    report.show_bad(console, total.bad)
    if keep:
        report.keep(matrix=section)
    return 1 if total.bad else 0


def mutants(jobs: int) -> int:
    """Hunt every mutant; 1 if one survives."""
    caught = list(matrix.hunted(jobs))
    section = report.mutants_section(caught)
    report.show_mutants(console, section)
    report.keep(mutants=section)
    return 1 if any(one.survived for one in caught) else 0


def speeds() -> int:
    """Measure all recovery times, the patient ones side by side."""
    with ThreadPoolExecutor(2) as pool:
        section = report.speed_section(list(pool.map(speed.measured, speed.TROUBLES)))
    report.show_speed(console, section)
    report.keep(speed=section)
    return 0


if __name__ == "__main__":
    sys.exit(main())
