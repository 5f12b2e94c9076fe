"""The trunk: moves an action through Redis and RQ, from its proposal to its rest."""
