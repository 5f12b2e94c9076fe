"""The action types that this process knows, found by name and never by a path from Redis."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from tallystick.core import canonical
from tallystick.core.canonical import Json
from tallystick.core.errors import (
    ActionModuleError,
    InvalidActionType,
    InvalidInput,
    UnknownAction,
)
from tallystick.jobs.action import Action, Protection, overrides, protection_of
from tallystick.rollback import (
    CHOICES,
    Compensate,
    InBand,
    Irreversible,
    OutOfBand,
    RollbackPlan,
    plan,
)

ENTRY_POINTS = "tallystick.actions"

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")


class Registry:
    """Action types by name and version."""

    def __init__(self, types: Iterable[type[Action]] = ()) -> None:
        self._known: dict[tuple[str, int], Action] = {}
        for kind in types:
            self.add(kind)

    @classmethod
    def load(cls, modules: Iterable[str]) -> "Registry":
        """The types of these modules and of the `tallystick.actions` entry points.

        Raises `ActionModuleError` naming a module that cannot be imported or defines none, and
        `InvalidActionType` for a type that is not complete.
        """
        registry = cls()
        for name in modules:
            registry._add_module(_import(name), name)
        for entry in entry_points(group=ENTRY_POINTS):
            try:
                registry._add_module(entry.load(), entry.value)
            except (ImportError, AttributeError) as error:
                raise ActionModuleError(
                    module=entry.value, problem=canonical.told(error)
                ) from error
        return registry

    def _add_module(self, module: ModuleType, name: str) -> None:
        found = [
            kind
            for kind in vars(module).values()
            if inspect.isclass(kind) and issubclass(kind, Action) and hasattr(kind, "name")
        ]
        if not found:
            raise ActionModuleError(module=name, problem="it defines no action type")
        for kind in found:
            self.add(kind)

    def add(self, kind: type[Action]) -> None:
        """Register a type; the same class twice is once.

        Raises `InvalidActionType` where something is missing or contradicts itself.
        """
        spec = _checked(kind)
        known = self._known.setdefault((kind.name, kind.version), spec)
        if type(known) is not kind:
            raise InvalidActionType(
                name=kind.name,
                problem=f"version {kind.version} is already defined by "
                f"{type(known).__module__}.{type(known).__qualname__}",
                remedy="Give one of them another name or version.",
            )

    def latest(self, name: str) -> Action:
        """The newest version of this type. Raises `UnknownAction`."""
        versions = [version for known, version in self._known if known == name]
        if not versions:
            raise UnknownAction(name=name, known=", ".join(sorted(self.names())) or "none")
        return self._known[name, max(versions)]

    def find(self, name: str, version: int) -> Action | None:
        """Exactly this version, or None."""
        return self._known.get((name, version))

    def names(self) -> frozenset[str]:
        """All known names."""
        return frozenset(name for name, _ in self._known)

    def __iter__(self) -> Iterator[Action]:
        return iter(sorted(self._known.values(), key=lambda spec: (spec.name, spec.version)))

    def plan(self, spec: Action) -> RollbackPlan:
        """The rollback plan of a type, as it is approved.

        Raises `UnknownAction` if the type that compensates it is not known here.
        """
        if isinstance(spec.rollback, Compensate):
            return plan(
                spec.rollback, compensation_version=self.latest(spec.rollback.action).version
            )
        return plan(spec.rollback)


def validate(spec: Action, given: Any) -> tuple[BaseModel, dict[str, Json]]:
    """The parameters as a model, and in the canonical form that is approved and stored.

    `given` is a mapping, a model, or JSON that `canonical.loads` has read. Raises `InvalidInput`
    that names the field.
    """
    if isinstance(given, BaseModel):
        given = given.model_dump()
    if not isinstance(given, Mapping):
        raise InvalidInput(
            field="params",
            problem=f"{type(given).__name__} is not a JSON object",
            remedy=f"Pass an object with the fields {_fields(spec)}.",
        )
    canonical.normalise(given, field="params")
    try:
        params = spec.Params.model_validate(_exact(given), extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in ("params", *first["loc"]))
        raise InvalidInput(
            field=where,
            problem=first["msg"],
            remedy=f"{spec.name} takes {_fields(spec)}.",
        ) from None
    canonical.normalise(params, field="params")  # refuses what JSON would hide, such as a set
    dumped = params.model_dump(mode="json", by_alias=True)
    form = canonical.normalise(dumped, field="params")
    assert isinstance(form, dict)
    if (size := len(canonical.dumps(form))) > canonical.MAX_BYTES:
        raise InvalidInput(
            field="params",
            problem=f"{size} bytes in canonical form, the limit is {canonical.MAX_BYTES}",
            remedy="Pass a reference to the content (a path, a URL with a digest) instead.",
        )
    return spec.Params.model_validate(form), form


def _exact(value: Any) -> Any:
    """Floats as the decimals that they print as, so that money never passes through a float."""
    if isinstance(value, float):
        return canonical.exact(value)
    if isinstance(value, str):
        return canonical.text(value, field="params", line_breaks=True)
    if isinstance(value, Mapping):
        return {name: _exact(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(item) for item in value]
    return value


def _fields(spec: Action) -> str:
    parts = []
    for name, field in spec.Params.model_fields.items():
        kind = getattr(field.annotation, "__name__", str(field.annotation))
        parts.append(f"{name}: {kind}" + ("" if field.is_required() else " (optional)"))
    return "{" + ", ".join(parts) + "}"


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever a user's module raises at import
        raise ActionModuleError(module=name, problem=canonical.told(error)) from error


def _checked(kind: type[Action]) -> Action:
    """An instance of a complete type. Raises `InvalidActionType`."""
    if found := _defect(kind):
        name = getattr(kind, "name", None) or kind.__qualname__
        raise InvalidActionType(name=name, problem=found[0], remedy=found[1])
    spec = kind()
    if isinstance(spec.rollback, InBand):
        undo_method(spec, spec.rollback)
    return spec


def _defect(kind: type[Action]) -> tuple[str, str] | None:
    """What is wrong with a type, and what to do; None if it is complete."""
    name, model = getattr(kind, "name", None), getattr(kind, "Params", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "its name is not usable", "Use lower case, digits, dots, dashes: bank.transfer."
    if not isinstance(kind.version, int) or kind.version < 1:
        return "its version is not a positive whole number", "Start with version = 1."
    declared = getattr(kind, "rollback", None)
    if not isinstance(declared, InBand | Compensate | OutOfBand | Irreversible):
        return "it declares no rollback", CHOICES
    if not (inspect.isclass(model) and issubclass(model, BaseModel)):
        return "it has no Params", "Define `class Params(BaseModel)` inside it."
    if kind.protection is not None and kind.protection not in set(Protection):
        return f"{kind.protection!r} is no protection", f"Use one of {', '.join(Protection)}."
    try:
        spec = kind()
    except TypeError as error:
        return f"it cannot be made ({error})", "Its __init__ must take no arguments."
    return _missing_method(spec)


def _missing_method(spec: Action) -> tuple[str, str] | None:
    protection = protection_of(spec)
    needed = {"execute": "it has no execute method"}
    if protection is not Protection.BLIND:
        needed["verify"] = "it has no verify method"
        needed["observe"] = f"it is {protection} but cannot be read"
    if protection is Protection.FENCED:
        needed["raise_fence"] = "it is fenced but cannot raise the fence"
    for method, problem in needed.items():
        if not overrides(spec, method):
            takes = ", ".join(list(inspect.signature(getattr(Action, method)).parameters)[1:])
            return problem, f"Define {method}({takes})."
    return None


def undo_method(spec: Action, rollback: InBand) -> Callable[..., Any]:
    """The bound undo method of a type that rolls back in-band. Raises `InvalidActionType`."""
    undo = rollback.undo
    if isinstance(undo, str):
        candidates = [getattr(spec, undo, None)]
    else:  # a function of the class body, or a plain one given to the short form
        candidates = [undo.__get__(spec) if hasattr(undo, "__get__") else None, undo]
    for method in candidates:
        if callable(method) and _takes_four(method):
            return cast("Callable[..., Any]", method)
    raise InvalidActionType(
        name=spec.name,
        problem=f"its InBand undo {undo!r} is not a method that takes"
        " (params, before, result, context)",
        remedy="Define `def undo(self, params, before, result, context)` and name it.",
    )


def _takes_four(method: Callable[..., Any]) -> bool:
    try:
        inspect.signature(method).bind(None, None, None, None)
    except (TypeError, ValueError):
        return False
    return True
