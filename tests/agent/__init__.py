"""Tests of the agent: it runs in real interpreters of every supported version."""
