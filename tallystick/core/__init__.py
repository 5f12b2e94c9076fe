"""The floor: canonical values, and the one tree of errors, which every room stands on."""
