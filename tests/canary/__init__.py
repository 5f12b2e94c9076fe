"""The canary and the drill, in process."""
