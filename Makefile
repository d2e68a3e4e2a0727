# Everything works on a fresh machine with Python >= 3.11; no GPU and no CUDA toolkit needed,
# but for test-gpu and bench.
# The first interpreter that runs and is new enough (a version manager's shim may exist and not run).
BASE_PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
PYTHON := $(VENV)/bin/python
WORKERS ?= auto
# By the hashes of the sources, outside of the clone, so that a fresh clone finds it, as NVRTC's answers to the tests.
MYPY_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/warploom-mypy

N ?= 1000

# Those with the libraries, in an environment of their own: PyTorch and its friends are no part of the usual one.
LIBRARIES := .venv-libraries

.PHONY: demo test test-all test-gpu test-libraries coverage release-check check mutants fuzz spills bench clean

demo: $(VENV)/.ready  ## simulate, check, explain and draw a specialized GEMM; leaves figures in out/
	$(PYTHON) -m warploom demo --out out

test: $(VENV)/.ready  ## all tests that need no GPU
	$(PYTHON) -m pytest -n $(WORKERS) --dist worksteal -m "not gpu"

test-all: $(VENV)/.ready  ## the same with the thorough ones, each program simulated in every order of events instead of one by the test's name
	TESTS_ORDERS=all $(PYTHON) -m pytest -n $(WORKERS) --dist worksteal -m "not gpu"

test-libraries: $(LIBRARIES)/.ready  ## the tests that need PyTorch, liger-kernel or flash-linear-attention (the extra `libraries`)
	$(LIBRARIES)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not gpu" $$(grep -rl importorskip tests --include='test_*.py')

coverage: $(VENV)/.ready  ## lines and branches that `make test` runs; twice its time
	$(PYTHON) -m pytest -n $(WORKERS) --dist worksteal -m "not gpu" --cov --cov-report=term

# The mutants' page of a release is rewritten by `make mutants`, which takes longer.
release-check: check test-all spills  ## before a release: test-all (with a wheel in an empty environment and the links of all pages), ptxas' spills, a sample of the mutants, N random kernels
	$(PYTHON) -m tests.mutants --seconds 600 --out out/release-mutants.jsonl --page out/release-mutants.md
	$(MAKE) fuzz

test-gpu: $(VENV)/.ready  ## the tests that need an H100 or H200
	$(PYTHON) -m pytest -m gpu

check: $(VENV)/.ready  ## style, types, and the budget of size (tools/size.json)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy --cache-dir $(MYPY_CACHE)
	$(PYTHON) tools/size.py

mutants: $(VENV)/.ready  ## a sample of the mutants of the library's programs through the checker; rewrites docs/mutants.md
	$(PYTHON) -m tests.mutants

fuzz: $(VENV)/.ready  ## N random kernels and N/5 random broken scripts (docs/fuzzing.md); resumes out/fuzz.jsonl
	$(PYTHON) -m tests.fuzz --kernels $(N) --scripts $(shell expr $(N) / 5) --out out/fuzz.jsonl

spills: $(VENV)/.ready  ## every variant of the GEMM through ptxas: what spills, and what the user is told
	$(PYTHON) -m tests.e2e.variants

bench: $(VENV)/.ready  ## GEMM beside its peers (needs a GPU, torch and triton)
	$(PYTHON) -m benchmarks gemm --out out/gemm.jsonl

$(LIBRARIES)/.ready: pyproject.toml
	@test -n "$(BASE_PYTHON)" || { echo "No Python >= 3.11 found: make BASE_PYTHON=/path/to/it"; exit 1; }
	test -x $(LIBRARIES)/bin/python || $(BASE_PYTHON) -m venv $(LIBRARIES)
	$(LIBRARIES)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev,libraries]'
	touch $@

# Built again whenever the dependencies may have changed; by uv, which takes a fifth of pip's time, where it can be had.
$(VENV)/.ready: pyproject.toml
	@test -n "$(BASE_PYTHON)" || { echo "No Python >= 3.11 found: make BASE_PYTHON=/path/to/it"; exit 1; }
	test -x $(PYTHON) || $(BASE_PYTHON) -m venv --without-pip $(VENV)
	$(BASE_PYTHON) -m pip --python $(PYTHON) install --quiet --disable-pip-version-check --no-compile uv \
		&& $(VENV)/bin/uv pip install --quiet --python $(PYTHON) pip -e '.[dev]' \
		|| { $(BASE_PYTHON) -m venv $(VENV) && $(PYTHON) -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'; }
	-$(PYTHON) -m compileall -qq -j 0 -x '/(pip|mypy|mypyc|setuptools|pkg_resources|virtualenv|fontTools|mpl_toolkits|lexers|tests|f2py|PIL|distlib|pre_commit|identify)/' $(VENV)/lib  # what tests import, on all cores
	touch $@

clean:
	rm -rf $(VENV) $(LIBRARIES) out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
