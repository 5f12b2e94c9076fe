"""Makes what is missing of the stack's secrets; what is there stays as it is.

Each folder is a volume of its own and mounted only where it is needed: nobody but the approver's
side sees the private key.
"""

import secrets
import shutil
import sys
from pathlib import Path

from tallystick.approvals import create


def password(file: Path) -> None:
    """Write a random password, for the users of the containers that have the volume."""
    if not file.exists():
        draft = file.with_suffix(".draft")
        draft.write_text(secrets.token_urlsafe(32) + "\n")
        draft.chmod(0o444)
        draft.rename(file)
        print(f"made {file}")


def keys(approver: Path, worker: Path) -> None:
    """Make the approval key, and tell workers its public half."""
    if not (approver / "approval.key").exists():
        print(f"made the approval key {create(approver).key_id}")
    if not (worker / "trusted.json").exists():
        shutil.copyfile(approver / "trusted.json", worker / "trusted.json")


if __name__ == "__main__":
    root = Path(sys.argv[1])
    password(root / "redis" / "password")
    password(root / "grafana" / "password")
    keys(root / "approver", root / "worker")
