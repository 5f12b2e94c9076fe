"""A tracer that keeps its spans in memory, in use by this test and by no other."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@dataclass
class Spans:
    """The spans that have ended."""

    exporter: InMemorySpanExporter

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return sorted(span.name.removeprefix("tallystick.") for span in self.all)

    def named(self, name: str) -> ReadableSpan:
        """The one span of this name."""
        [found] = [span for span in self.all if span.name == f"tallystick.{name}"]
        return found

    def parent_of(self, span: ReadableSpan) -> str:
        """The name of a span's parent; empty if it has none that has ended."""
        ids = {one.context.span_id: one.name for one in self.all if one.context}
        return ids.get(span.parent.span_id, "").removeprefix("tallystick.") if span.parent else ""

    @property
    def traces(self) -> set[str]:
        """The ids of all traces."""
        return {f"{span.context.trace_id:032x}" for span in self.all if span.context}

    def text(self) -> str:
        """Everything that would be sent."""
        return "\n".join(span.to_json() for span in self.all)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Spans(exporter)
    provider.shutdown()
