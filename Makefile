# make test    all checks and all tests that can run here
# make demo    the story in about a minute, with a simulated accelerator where there is no GPU
# make check   the checks and the fast tests
# make bench-NAME   measure: benchmarks/NAME.py, with - for _ (bench-overhead, bench-truth, ...); ARGS="--help"
# make bench-tools  install the other tools that bench-truth is held beside, each apart
# Each creates .venv when it is absent. PYTHON=/path/to/python3 chooses the interpreter.

.PHONY: help test demo check clean bench-tools

help:
	@sed -n 's/^# //p' Makefile

test: .venv/.installed
	@scripts/check --all

demo: .venv/.installed
	@.venv/bin/whyidle demo

check: .venv/.installed
	@scripts/check

bench-tools: .venv/.installed
	@PYTHONPATH=. .venv/bin/python benchmarks/truth.py --install-tools

bench-%: .venv/.installed
	@PYTHONPATH=. .venv/bin/python benchmarks/$(subst -,_,$*).py $(ARGS)

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

.venv/.installed: pyproject.toml scripts/setup
	@PYTHON='$(PYTHON)' scripts/setup
