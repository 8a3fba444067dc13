# Targets and variables are described in the lines that begin with "#:", which 'make' alone prints.
#: Compare parameter servers with all-reduce. Every target sets up what it needs; none needs root.
#:
#:   make compare           both strategies, end to end: runs, table, figures, report
#:   make ps-sweep          parameter servers: workers x servers x placement x sync/async
#:   make allreduce-sweep   all-reduce: workers x bytes per pack
#:   make placement-sweep   model x servers x placement
#:   make tuning-sweep      one setting of the exchange at a time: sizes, in flight, formats ...
#:   make placement         where variables would go, without running: MODEL=InceptionV3 NUM_PS=4
#:   make report            the report again, from the records in RESULTS
#:   make bench             what the suite itself costs; with LAUNCHER=emulated also how close
#:                          every strategy comes to what the links allow
#:   make doctor            what would go wrong on these hosts, before it costs node hours
#:   make accept-gpu        the checklist for a first use on GPUs
#:
#:   make setup             only the environment
#:   make wheelhouse        download every package, for a machine without internet
#:   make check             lint, types and unit tests (about a minute on two cores)
#:   make test              check, and the tests that train for real
#:   make test-slurm        only those on a real Slurm, which is brought up and taken down
#:   make lock              developers: requirements/*.txt again from pyproject.toml (needs uv)
#:
#: Variables (make compare PROFILE=standard ...):
#:   PROFILE=quick          or standard, the one to publish
#:   LAUNCHER=local         how tasks are started: local, emulated, slurm or ssh
#:   RESULTS=results        folder of the records
#:   MODEL= NUM_PS=         passed on as --model and --num-ps where given
#:   ARGS=                  further arguments, split at spaces
#:   ENV=venv               or existing: the active module's, conda's or container's Python
#: and, also taken from the shell's environment:
#:   VENV=.venv             folder of the virtual environment
#:   TF=                    build of TensorFlow, cpu or cuda (what VENV holds, at first cpu)
#:   PYTHON=                command of the Python to use (at first python3.11, else 3.12, 3.13)
#:   WHEELHOUSE=            set up from this folder instead of the internet

# What is measured comes from the command line alone: a MODEL left over in somebody's shell must not
# change an experiment (and ENV names a start-up file of sh).
PROFILE = quick
LAUNCHER = local
RESULTS = results
MODEL =
NUM_PS =
ARGS =
ENV = venv
# Where things are on this machine may stand in a shell profile.
VENV ?= .venv
TF ?=
PYTHON ?=
WHEELHOUSE ?=
UV ?= uv

# Values reach recipes through the environment, and "$$RESULTS" there is never read as shell or as make.
VARIABLES = PROFILE LAUNCHER RESULTS MODEL NUM_PS ARGS ENV VENV TF PYTHON WHEELHOUSE UV
$(foreach name,$(VARIABLES),$(eval override $(name) := $$(value $(name))))
export $(VARIABLES)

# This checkout first. The caller's own path only where it belongs to the environment: a module's
# PYTHONPATH would put other versions before those of the lock file.
ifeq ($(ENV),existing)
export SUITE_PYTHON := $(or $(PYTHON),python3)
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
else
export SUITE_PYTHON := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR)
endif

SWEEPS = compare ps-sweep allreduce-sweep placement-sweep tuning-sweep
# Without file names: "set -f" keeps a * in ARGS from becoming one.
RUN = @set -f; exec "$$SUITE_PYTHON" -m
CHOICE = $${MODEL:+--model "$$MODEL"} $${NUM_PS:+--num-ps "$$NUM_PS"}

.PHONY: help environment setup $(SWEEPS) placement report bench doctor accept-gpu wheelhouse check test test-slurm lint dev-tools lock

help:
	@sed -n 's/^#: \{0,1\}//p' Makefile

environment:
	@sh requirements/set_up.sh environment

setup: environment
	$(RUN) ps_allreduce.environment

wheelhouse:
	@sh requirements/set_up.sh wheelhouse

# Where some points failed (status 1) the others are analysed all the same, those of a dry run are none.
$(SWEEPS): environment
	@set -f; "$$SUITE_PYTHON" -m experiments $@ --profile "$$PROFILE" --launcher "$$LAUNCHER" \
		--results "$$RESULTS" $(CHOICE) $$ARGS; status=$$?; \
	case " $$ARGS " in *" --dry-run "*) exit $$status ;; esac; \
	if [ $$status -le 1 ]; then "$$SUITE_PYTHON" -m analysis report -- "$$RESULTS/$@" || \
		status=$$((status ? status : $$?)); fi; exit $$status

placement: environment
	$(RUN) experiments placement $(CHOICE) $$ARGS

report: environment
	$(RUN) analysis report "$$RESULTS" $$ARGS

bench: environment
	$(RUN) experiments bench --launcher "$$LAUNCHER" --results "$$RESULTS" $$ARGS

doctor: environment
	$(RUN) launchers doctor --launcher "$$LAUNCHER" --results "$$RESULTS" $$ARGS

accept-gpu: environment
	$(RUN) experiments accept-gpu --launcher "$$LAUNCHER" --results "$$RESULTS" $$ARGS

dev-tools: environment
	@"$$SUITE_PYTHON" -m ps_allreduce.environment --extra dev >/dev/null

lint: dev-tools
	@"$$SUITE_PYTHON" -m ruff check
	@"$$SUITE_PYTHON" -m ruff format --check
	@"$$SUITE_PYTHON" -m mypy

check: lint
	$(RUN) pytest -n auto --dist worksteal -m "not tensorflow and not slow" $$ARGS

# Two at a time: most of a real test is waiting, or an import on one core; but those that measure this
# machine run alone. The longest file begins first. -rs lists every skipped one with its reason.
REAL = (tensorflow or slow)
test: check
	$(RUN) pytest -n 2 --dist loadfile --no-loadscope-reorder -rs --durations=20 -m "$(REAL) and not timed" \
		tests/real/test_slurm.py tests $$ARGS
	$(RUN) pytest -rs --durations=20 -m "$(REAL) and timed" $$ARGS

test-slurm: dev-tools
	$(RUN) pytest -rs -m slurm $$ARGS

# --universal: one file for all Python versions and platforms. The tools of 'make check' are in it,
# because users run 'make test' in the same environment.
lock:
	@for build in cpu cuda; do \
		"$$UV" pip compile pyproject.toml --extra $$build --extra dev --upgrade --quiet \
			--universal --python-version 3.11 --generate-hashes \
			--custom-compile-command "make lock" --output-file requirements/$$build.txt || exit; \
	done
