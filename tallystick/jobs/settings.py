"""The settings: read from the environment once, at the edge, and passed inward."""

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import parse_qs, quote, urlsplit

import platformdirs
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tallystick.core.errors import SettingsError

MARGIN_SECONDS = 0.5
"""What must be left of the lease when an effect's deadline ends: time to kill the work-horse."""


class Settings(BaseSettings):
    """Everything that can be set, each as `TALLYSTICK_<NAME>` in the environment."""

    model_config = SettingsConfigDict(env_prefix="TALLYSTICK_", frozen=True, extra="ignore")

    redis_url: str | None = None
    """`redis://`, `rediss://`, `unix://` or `redis+sentinel://host:port,host:port/service/db`.
    Without it, a private server is started in `data_dir`."""
    redis_password_file: Path | None = None
    """A file that holds the password for `redis_url`, so that no environment shows it."""
    replicas: int = Field(default=0, ge=0, le=100)
    """How many replicas must have an intent, a decision or an outcome on disk before anybody goes
    by it: all that could be promoted. 0 waits for the primary's own disk only."""
    actions: Annotated[tuple[str, ...], NoDecode] = ()
    """Modules that define action types, separated by commas."""
    namespace: str = Field(default="tallystick", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """Prefix of all keys, and the name of the RQ queue. Namespaces share nothing."""
    lease_seconds: float = Field(default=15, ge=1, le=3600)
    """How long a claim lasts unless renewed; a dead worker's action waits at most this long."""
    effect_deadline_seconds: float | None = Field(default=None, gt=0)
    """How long one effect may take before its work-horse is killed. Must fit into the lease;
    two thirds of it unless set, but never beyond the half second before its end."""
    verify_deadline_seconds: float = Field(default=3, ge=0, le=3600)
    """How long verification polls a target that does not yet show the effect."""
    data_dir: Path = Path(platformdirs.user_data_dir("tallystick"))
    """Where the embedded server and, unless `key_dir` is set, the approval keys live."""
    key_dir: Path | None = None
    """Folder of the approval keys: `approval.key` (private) and `trusted.json` (public keys)."""
    allow_unsafe: Annotated[tuple[str, ...], NoDecode] = ()
    """Checks of the doctor, separated by commas, that warn instead of stopping work."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """How workers and services write their log lines: words on a terminal and JSON elsewhere
    (auto), or always the one or the other."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged. Changes of state are `info`, those that call a person `warning`."""

    @field_validator("log_format", "log_level", mode="before")
    @classmethod
    def _any_case(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @field_validator("actions", "allow_unsafe", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @model_validator(mode="after")
    def _effect_fits_the_lease(self) -> Self:
        if self.effect_deadline + MARGIN_SECONDS > self.lease_seconds:
            raise ValueError(
                f"effect_deadline_seconds ({self.effect_deadline:g}) plus {MARGIN_SECONDS:g} s"
                f" must fit into lease_seconds ({self.lease_seconds:g})"
            )
        return self

    @classmethod
    def load(cls, **given: object) -> Self:
        """Read the environment, which `given` overrides. Raises `SettingsError` naming the
        variable."""
        try:
            return cls(**given)  # type: ignore[arg-type]
        except ValidationError as error:
            first = error.errors()[0]
            name = "_".join(str(part) for part in first["loc"]) or "effect_deadline_seconds"
            raise SettingsError(
                variable=f"TALLYSTICK_{name.upper()}", problem=first["msg"]
            ) from None

    @property
    def store_url(self) -> str | None:
        """`redis_url` with its password, for connections and not for logs; None for the embedded
        server. The file is read each time. Raises `SettingsError` if it cannot be used."""
        if self.redis_password_file is None:
            return self.redis_url
        return _with_password(self.redis_url, _secret(self.redis_password_file))

    @property
    def effect_deadline(self) -> float:
        """Seconds that one effect may take."""
        most = self.lease_seconds - MARGIN_SECONDS
        return self.effect_deadline_seconds or min(self.lease_seconds * 2 / 3, most)

    @property
    def keys_path(self) -> Path:
        """The folder of the approval keys."""
        return self.key_dir or self.data_dir / "keys"


def _secret(path: Path) -> str:
    """What a secret file holds, without the line's end that editors put there."""
    try:
        found = path.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(f"{path} cannot be read ({_reason(error)})") from None
    if not found or "\n" in found:
        raise _unusable(f"{path} must hold one line, the password")
    return found


def _with_password(url: str | None, password: str) -> str:
    if url is None:
        raise _unusable("there is no TALLYSTICK_REDIS_URL that asks for a password")
    scheme, _, rest = url.partition("://")
    login, at, _ = urlsplit(url).netloc.rpartition("@")
    if ":" in login or "password" in parse_qs(urlsplit(url).query):
        raise _unusable("TALLYSTICK_REDIS_URL holds a password already")
    return f"{scheme}://{login}:{quote(password, safe='')}@{rest.removeprefix(login + at)}"


def _unusable(problem: str) -> SettingsError:
    return SettingsError(variable="TALLYSTICK_REDIS_PASSWORD_FILE", problem=problem)


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return str(error.strerror) if isinstance(error, OSError) else "it is not UTF-8"
