# 'make' alone prints what every study compares, and then the lines that begin with "#:".
#:   make placement         where variables would go; trains nothing: MODEL=InceptionV3 NUM_PS=4
#:   make gate              do all strategies train the same weights? MODEL=ResNet50 NUM_PS=2
#:   make tune              the best setting of each side for this model and these hosts, for equal
#:                          node minutes: ARGS="--minutes 10"
#:   make study             a study by its name, NAME=piz-daint; "python -m experiments list" has their
#:                          costs and expected findings
#:   make report            the report again, from the records in RESULTS; with prices of hosts:
#:                          ARGS="--host-price 3.1 --ps-host-price 0.4"
#:   make compare-results   two folders of results, of two clusters or two versions: A=folder B=folder
#:   make predict           rates with more workers or other links, from the records in RESULTS:
#:                          ARGS="--workers 8,16 --bandwidth 100mbit"; writes a dated file
#:   make advise            which measured setting would be best on more hosts, from the records in
#:                          RESULTS: HOSTS=16, with prices of hosts as make report; launches nothing
#:   make check-predictions errors of those predictions, from launches that were made afterwards
#:   make export            a measured setting as a training of your own: SETTING=best INTO=folder
#:   make bench             costs of the suite itself
#:   make doctor            finds faults of hosts before they cost node hours; with MODEL= also
#:                          hosts that cannot build the model
#:   make hosts             copies the checkout to the hosts of HOSTS= and sets them up for LAUNCHER=ssh
#:   make accept-cluster    half an hour's check of two hosts or more; leaves one file to send, in
#:                          which names are replaced
#:   make accept-gpu        the checklist for a first use on GPUs
#:
#:   make setup             only the environment
#:   make wheelhouse        download every package, for a machine without internet
#:   make check             lint, types, documents and unit tests (five minutes on two cores)
#:   make test              check, and the tests that train for real
#:   make faults            inject faults into real sweeps, N=200 of them, and count what broke
#:   make test-slurm        only the tests on a real Slurm, which they start and stop
#:   make docs              the documents as a site that can be searched: site/index.html
#:   make lock              developers: write requirements/*.txt again from pyproject.toml (needs uv)
#:
#: Variables (make compare PROFILE=standard ...):
#:   PROFILE=quick          or standard, the one to publish
#:   LAUNCHER=local         how tasks are started: local, emulated, slurm or ssh; by default tune
#:                          and all sweeps but tuning-sweep and horovod-sweep emulate hosts, if the
#:                          kernel allows namespaces
#:   RESULTS=results        folder of the records
#:   MODEL= NUM_PS=         passed on as --model and --num-ps if given
#:   A= B=                  folders of make compare-results, each with one sweep
#:   HOSTS=                 for make hosts: a file with a host per line; for make advise: a number
#:   SETTING=best INTO=my_training
#:                          for make export: best, or the beginning of an experiment_id in
#:                          summary.csv; and a new folder
#:   NAME=                  name of a study, for make study
#:   N=20                   number of faults
#:   ARGS=                  further arguments, split at spaces
#:   ENV=venv               or existing: the active module's, conda's or container's Python
#: These may also stand in the shell's environment:
#:   VENV=.venv             folder of the virtual environment
#:   TF=                    build of TensorFlow, cpu or cuda (default: as in VENV, else cpu)
#:   PYTHON=                command of the Python to use (default: as in VENV, else the first of
#:                          python3.11, 3.12, 3.13, python3 and python that fits)
#:   HOROVOD=               1 also builds Horovod, which needs a C++ compiler; 0 leaves it out
#:                          (default: as in VENV, else 0)
#:   WHEELHOUSE=            set up from this folder instead of the internet

# Recipes name files from here; and RESULTS=results is a folder beside them.
$(if $(wildcard requirements/set_up.sh),,$(error this is not the folder of the Makefile: use make -C FOLDER, not make -f))

# What is measured comes only from the command line: a MODEL left over in a shell must not change an
# experiment. ENV does too, because it names a start-up file of sh.
PROFILE = quick
LAUNCHER =
RESULTS = results
MODEL =
NUM_PS =
HOSTS =
A =
B =
SETTING = best
INTO = my_training
NAME =
N = 20
ARGS =
ENV = venv
# These say where things are on this machine, so they may stand in a shell profile.
VENV ?= .venv
TF ?=
HOROVOD ?=
PYTHON ?=
WHEELHOUSE ?=
UV ?= uv

# Values reach recipes through the environment, so neither make nor the shell reads "$$RESULTS" as code.
VARIABLES = PROFILE LAUNCHER RESULTS MODEL NUM_PS HOSTS A B SETTING INTO NAME N ARGS ENV VENV TF HOROVOD PYTHON WHEELHOUSE UV

# A misspelt one would be ignored, and something else measured than was asked for.
UNKNOWN := $(filter-out $(VARIABLES) SHELL,$(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name))))
$(if $(UNKNOWN),$(error $(UNKNOWN): no variable of this Makefile; "make" lists them. Options of a command go into ARGS="--workers 4"))

# The override below hides where a value comes from.
GIVEN := $(foreach name,MODEL NUM_PS HOSTS,$(and $(filter command,$(origin $(name))),$(value $(name)),$(name)))

$(foreach name,$(VARIABLES),$(eval override $(name) := $$(value $(name))))
export $(VARIABLES)

# This checkout comes first. The caller's PYTHONPATH follows only with ENV=existing, where it belongs to
# the environment. Elsewhere it would put a module's versions before those of the lock file.
ifeq ($(ENV),existing)
export SUITE_PYTHON := $(or $(PYTHON),python3)
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
else
export SUITE_PYTHON := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR)
endif

# The studies: one line of the catalogue each.
SWEEPS := $(shell sed -n 's/^    "\([a-z0-9-]*\)": .*/\1/p' experiments/studies/catalogue.py)

# One that its goal does not take would be ignored as well.
MODEL_GOALS = $(SWEEPS) study placement gate tune advise export doctor
NUM_PS_GOALS = $(SWEEPS) study placement gate
HOSTS_GOALS = advise hosts
IDLE := $(strip $(foreach name,$(GIVEN),$(if $(filter $($(name)_GOALS),$(MAKECMDGOALS)),,$(name))))
$(if $(IDLE),$(error $(IDLE): make $(MAKECMDGOALS) does not take it. Options of a command go into ARGS="--hosts 4"))

# "set -f" keeps a * in ARGS from becoming file names.
RUN = @set -f; exec "$$SUITE_PYTHON" -m
CHOICE = $${MODEL:+--model "$$MODEL"} $${NUM_PS:+--num-ps "$$NUM_PS"}

.PHONY: help environment setup $(SWEEPS) study placement gate tune report compare-results predict check-predictions advise export bench doctor hosts accept-cluster accept-gpu wheelhouse check test test-slurm faults lint docs dev-tools lock

# The first line of a study's module says what it compares, or that of its function among the sweeps of settings.
help:
	@echo "Compare parameter servers with all-reduce. Every target sets up what it needs; none needs root."
	@echo
	@for study in $(SWEEPS); do name=$$(echo "$$study" | tr - _); printf '  make %-17s %s\n' "$$study" "$$(find experiments/studies \
		\( -name "$$name.py" -o -name "$${name}_study.py" \) -exec sed -n '1s/"//gp' {} +; \
		sed -n "/^def _$$name(/{n;s/^ *\"*//p;}" experiments/studies/setting_sweeps.py)"; done
	@sed -n 's/^#: \{0,1\}//p' Makefile

environment:
	@sh requirements/set_up.sh environment

setup: environment
	$(RUN) ps_allreduce.environment

wheelhouse:
	@sh requirements/set_up.sh wheelhouse

# If some points failed (status 1), the others are still analysed. A dry run and help leave nothing to analyse,
# and neither does a sweep that could not begin, which has said why.
define RUN_STUDY
set -f; export PS_ALLREDUCE_RECIPE=$$$$; "$$SUITE_PYTHON" -m experiments "$$NAME" --profile "$$PROFILE" \
	--launcher "$${LAUNCHER:-auto}" --results "$$RESULTS" $(CHOICE) $$ARGS; status=$$?; \
case " $$ARGS " in *" --dry-run "* | *" --help "* | *" --help-all "*) exit $$status ;; esac; \
if [ $$status -eq 0 ] || { [ $$status -eq 1 ] && [ -d "$$RESULTS/$$NAME/runs" ]; }; then "$$SUITE_PYTHON" -m analysis report -- "$$RESULTS/$$NAME" || \
	status=$$((status ? status : $$?)); fi; exit $$status
endef

$(SWEEPS): environment
	@NAME=$@; $(RUN_STUDY)

study: environment
	@test -n "$$NAME" || { \
		echo "Error: make study needs a NAME, such as NAME=piz-daint: choose one of $(SWEEPS)." >&2; exit 2; }
	@printf '%s\n' $(SWEEPS) | grep -qxFe "$$NAME" || { \
		echo "Error: NAME=$$NAME is no study: choose one of $(SWEEPS)." >&2; exit 2; }; $(RUN_STUDY)

placement: environment
	$(RUN) experiments placement $(CHOICE) $$ARGS

gate: environment
	$(RUN) experiments gate --launcher "$${LAUNCHER:-local}" --results "$$RESULTS" $(CHOICE) $$ARGS

tune: environment
	$(RUN) experiments tune --launcher "$${LAUNCHER:-auto}" --results "$$RESULTS" $${MODEL:+--model "$$MODEL"} $$ARGS

report: environment
	$(RUN) analysis report $$ARGS -- "$$RESULTS"

compare-results: environment
	$(RUN) analysis compare-results -- "$$A" "$$B"

predict: environment
	$(RUN) analysis predict $$ARGS -- "$$RESULTS"

check-predictions: environment
	$(RUN) analysis check-predictions -- "$$RESULTS"

advise: environment
	$(RUN) experiments advise $${MODEL:+--model "$$MODEL"} $${HOSTS:+--hosts "$$HOSTS"} $$ARGS -- "$$RESULTS"

export: environment
	$(RUN) experiments export --setting "$$SETTING" --results "$$RESULTS" --into "$$INTO" \
		$${MODEL:+--model "$$MODEL"} $${LAUNCHER:+--launcher "$$LAUNCHER"} $$ARGS

bench: environment
	$(RUN) experiments bench --launcher "$${LAUNCHER:-local}" --results "$$RESULTS" $$ARGS

# Launchers know hosts; experiments know models as well.
doctor: environment
	$(RUN) "$$([ "$$MODEL" ] && echo experiments || echo launchers)" doctor --launcher "$${LAUNCHER:-local}" \
		--results "$$RESULTS" $${MODEL:+--model "$$MODEL"} $$ARGS

# Packages, and the Python to make environments with, are told to the hosts as to set_up.sh here.
hosts: environment
	$(RUN) launchers hosts $${HOSTS:+--host-file "$$HOSTS"} --results "$$RESULTS" \
		$${WHEELHOUSE:+--wheelhouse "$$WHEELHOUSE"} $${PYTHON:+--python "$$PYTHON"} $$ARGS

accept-cluster accept-gpu: environment
	$(RUN) experiments $@ --launcher "$${LAUNCHER:-local}" --results "$$RESULTS" $$ARGS

dev-tools: environment
	@"$$SUITE_PYTHON" -m ps_allreduce.environment --extra dev >/dev/null

lint: dev-tools
	@"$$SUITE_PYTHON" -m ruff check
	@"$$SUITE_PYTHON" -m ruff format --check
	@"$$SUITE_PYTHON" -m mypy

docs: dev-tools
	$(RUN) sphinx --quiet --fail-on-warning --builder html docs site

# Types and documents take one core each.
check:
	@"$(MAKE)" --no-print-directory --jobs=2 lint docs
	$(RUN) pytest -n auto --dist worksteal -m "not tensorflow and not slow and not slurm" $$ARGS

# Real tests run three at a time: they mostly wait, or import on one core. Tests that measure this machine
# run alone, also after a failure of the others; only an interrupt (status 2) ends both. The longest files
# begin first. -rs lists every skipped test with its reason.
REAL = (tensorflow or slow)
LONGEST = $(addprefix tests/real/test_,slurm.py export.py users_model.py)
test: check
	@set -f; status=0; "$$SUITE_PYTHON" -m pytest -n 3 --dist loadfile --no-loadscope-reorder -rs --durations=20 \
		-m "$(REAL) and not timed" $(LONGEST) tests/real $$ARGS || status=$$?; \
	[ $$status -ne 2 ] || exit 2; \
	"$$SUITE_PYTHON" -m pytest -rs --durations=20 -m "$(REAL) and timed" tests/real $$ARGS || status=$$?; exit $$status

test-slurm: dev-tools
	$(RUN) pytest -rs -m slurm $$ARGS

faults: environment
	$(RUN) tests.faults --faults "$$N" --file "$$RESULTS/faults.jsonl" $$ARGS

# --universal: one file for all Python versions and platforms. It holds the tools of 'make check',
# because users run 'make test' in the same environment.
LOCK = pip compile --upgrade --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock"
lock:
	@for build in cpu cuda; do \
		"$$UV" $(LOCK) pyproject.toml --extra $$build --extra dev --output-file requirements/$$build.txt || exit; \
	done
	@HOROVOD_WITHOUT_PYTORCH=1 "$$UV" $(LOCK) --group horovod --constraint requirements/cpu.txt \
		--constraint requirements/cuda.txt --output-file requirements/horovod.txt
