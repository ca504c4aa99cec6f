# Commands of a checkout. Each target installs its requirements into .venv first.
#
#   make demo [INPUT=access.log]   the whole path: broker, real clients' bytes, Spark, lake table
#   make unit [ARGS=-x]            tests of one process without Spark or Java
#   make test [JOBS=2]             unit tests, and one or more of each family of integration tests; ARGS=tests/storage
#                                  for all tests of a directory
#   make test-all [JOBS=2]         all tests, in their long form
#   make test-changed [BASE=<rev>] tests that depend on files changed since BASE, nearest first, LIMIT=600 seconds
#   make check                     format, lint, types, import contracts, generated documents: under two minutes
#   make chart                     lint and render the Helm chart, and check it against the schemas of Kubernetes (needs Go)
#   make licenses                  compare the licences of all installed packages with NOTICE
#   make format                    format the code and apply the fixes of the linter
#   make docs                      generate the configuration, cli, evidence and limits pages and docs/llms.txt
#   make docs-site                 build the documents as a site with search, in build/docs-site; checks links and anchors
#   make sim [SEED=1]              one seed of the simulation; WORKLOAD=groups, cluster, compacted, transactions or queues
#   make sim-many [N=200] [SEED=1] N seeds from SEED
#   make model [DEPTH=12]          every order of DEPTH steps of the model of transactions; ARGS='--bounds zombie'
#                                  for a model that is explored completely
#   make chaos [MINUTES=40]        real brokers under kills, pauses, network faults and full disks (as root); SEED=1,
#                                  BROKERS=3; SECURITY=sasl_ssl; COORDINATION=zookeeper (needs Java and Maven)
#   make exactly-once [KILLS=50]   consume-transform-produce while copiers and brokers are killed, 4 times
#   make cleaner-kills [KILLS=50]  a broker that is killed while it cleans, rolls and deletes under load; SEED=1
#   make mirror-kills [KILLS=50]   two mirrors, source and target killed in turn while RECORDS=2000000 are copied
#   make legacy-churn [CHURN=120]  consumers of Ottla and of Kafka 0.9 in one group that join, leave, are killed and
#                                  lose their sessions for CHURN seconds; SEED=1
#   make damage [DAMAGES=300]      flipped bits in files of one of three replicas under load; SEED=1
#   make siege [SECONDS=60]        half-open and slow TLS handshakes and failed logins beside working clients, for
#                                  SECONDS each; HANDSHAKES=10000 at a time
#   make mutants [ARGS=storage]    defects in a copy of the source, 12 in each area, and how many the nearest tests find;
#                                  not part of CI; --count 20, --minutes 60, and --seed, by default the date, in ARGS
#   make exactly-once-stream       a Spark stream into a topic while driver, workers and broker are killed; KILLS=50, SEED=1
#   make exactly-once-load         loads, compactions and vacuums while all their processes are killed; KILLS=50, SEED=1,
#                                  FORMAT=delta,iceberg,parquet, JOB=load,local,snapshot,stream, at most MINUTES=40 per format
#   make exactly-once-topic        `ottla pipeline stream` from topic to topic while driver, workers, JVM and broker are
#                                  killed; KILLS=50, SEED=1, at most MINUTES=40
#   make page-views                a day of page views through examples/streams, compared with plain Python; VIEWS=5000000
#   make compat [JOBS=2]           clients and tools of other projects (Debian, npm, Maven), one or more of each family;
#                                  FAMILIES=compat for all, FAMILIES=compat/go for one
#   make kafka-suites [ARGS=...]   Apache Kafka's integration tests against Ottla and Apache Kafka, hours (Maven, a JDK);
#                                  ARGS="--cluster ottla '*AutoTopic*'" for one cluster and some classes
#   make bench [ARGS=...]          measure beside Apache Kafka and NATS; an interrupted run resumes
#   make bench-subset              the declared subset of it, under 40 minutes; make bench-quick: under 4
#   make bench-pipeline [ARGS=...] a topic into files: load on both engines, the source, Spark's own connector
#   make bench-micro-batch         latency of a stream from topic to topic, beside Spark's own Kafka connector
#   make bench-cleaner [ARGS=...]  compaction of a partition, beside Apache Kafka's cleaner
#   make bench-mirror [ARGS=...]   a topic copied to another cluster, beside Apache Kafka's MirrorMaker 2
#   make bench-size [ARGS=...]     appends and tail reads from 1 to 50 GB of log, and from 1 to 5,000 partitions
#   make bench-compare BASE=<rev>  this checkout against another revision, by ratio
#   make release                   build source archive, wheels, SBOM, checksums and notes in dist/, and try each wheel;
#                                  ARGS='--python python3.12' for a single Python
#   make deb                       build Debian packages in dist/debian, one for each Python; same ARGS
#   make cluster                   three brokers on this machine, in ./ottla-cluster
#   make clean                     remove everything that other targets installed and built
#
# Another Python in its own environment: make unit PYTHON=python3.13 VENV=.venv-3.13

# The first that runs: pyenv has a shim also for a version that is not active.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	$$name -c '' 2> /dev/null && command -v $$name && break; done)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install -c constraints.txt
INPUT  ?=
ARGS   ?=
SEED   ?= 1
WORKLOAD ?= groups
N      ?= 200
DEPTH  ?= 12
MINUTES ?= 40
JOBS   ?= 2
BROKERS ?= 3
SECURITY ?= plaintext
COORDINATION ?= quorum
KILLS  ?= 50
RECORDS ?= 2000000
CHURN  ?= 120
DAMAGES ?= 300
SECONDS ?= 60
HANDSHAKES ?= 10000
FORMAT ?= delta,iceberg,parquet
JOB    ?= load
VIEWS  ?= 5000000
FAMILIES ?= short
BASE   ?=
LIMIT  ?= 600

# The duration of a trial is an argument, so the limit for hanging tests must not end it.
TRIAL := $(BIN)/pytest -s -o faulthandler_timeout=0

# Everything under tests/ except tests that need processes, other clients, Spark, root or minutes, and checks of sources.
UNIT := $(filter-out $(addprefix tests/,__pycache__ app bench chaos cli clients cluster faults fuzz modes pipeline sim style suite testing web),\
	$(patsubst %/,%,$(wildcard tests/*/)))

# With named tests, requirements of other directories (Spark, the plots of bench/) are not installed.
NAMED := $(if $(filter --ignore --deselect,$(ARGS)),,$(filter tests%,$(ARGS)))
tested = $(if $(NAMED),$(filter tests tests/ tests/$(1)%,$(NAMED)),all)

RUN    := $(BIN)/pytest --numprocesses $(JOBS) --dist worksteal
SELECT := $(BIN)/python -m tests.suite.selection

# Apache Kafka's jars, shared with compat/, which looks at the same stamps.
KAFKA := $(patsubst %,.cache/compat/java-%/pom.xml,kafka tools)
# The servers of ZooKeeper.
ZOOKEEPER := .cache/compat/java-zookeeper/pom.xml
# Spark's Kafka connector, and an environment with the pyspark that it is for.
CONNECTOR := .cache/compat/java-spark/pom.xml .cache/compat/spark/requirements.txt

# Renders the chart for Kubernetes.
HELM := .cache/helm/helm
# Checks rendered manifests, with schemas from the OpenAPI definitions of a module that Helm is built with.
KUBECONFORM := .cache/kubeconform/kubeconform
OPENAPI := .cache/kubeconform/v3

# One stamp file per set of extras, rebuilt when the declarations, the pins or the compiled modules change. Only .base
# compiles; the others add their extra to the installed package.
DECLARED := pyproject.toml setup.py constraints.txt src/ottla/api/_messages.pyx src/ottla/protocol/_hot.pyx src/ottla/record/_batch.pyx src/ottla/record/_keys.pyx src/ottla/search/_byte_search.pyx

.DEFAULT_GOAL := help
.PHONY: help demo unit test test-all test-changed check chart licenses format docs docs-site sim sim-many model chaos exactly-once cleaner-kills mirror-kills legacy-churn damage siege mutants exactly-once-stream exactly-once-load exactly-once-topic page-views compat kafka-suites bench bench-subset bench-quick bench-pipeline bench-micro-batch bench-cleaner bench-mirror bench-size bench-compare release deb cluster clean

help:
	@sed -n 's/^#   //p' Makefile

# A failed venv leaves a Python without pip, for example on a Debian without python3-venv: the next run must not use it.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Ottla needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11 ..." >&2; exit 2; }
	@echo "Creating a Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -f $@; exit 2; }

$(VENV)/.base: $(BIN)/python $(DECLARED)
	@echo "Installing Ottla and its requirements into $(VENV), about 90 MB; a C compiler makes it faster"
	@PIP_CONSTRAINT=constraints.txt $(PIP) -e .
	@touch $@

$(VENV)/.pipeline: $(VENV)/.base
	@echo "Installing the pipeline's packages, Spark and a Java runtime among them: about 1.4 GB"
	@$(PIP) 'ottla[pipeline,iceberg,object-stores,duckdb,connect,plots]'
	@touch $@

$(VENV)/.test: $(VENV)/.base
	@echo "Installing the requirements of the tests, about 200 MB"
	@$(PIP) 'ottla[test]'
	@touch $@

# Compiled here, against the headers of MIT Kerberos: tests with a KDC are skipped without them.
$(VENV)/.kerberos: $(VENV)/.test
	@if ! command -v krb5-config > /dev/null; then echo "Without libkrb5-dev tests of Kerberos are skipped."; \
	else echo "Building the requirements of the Kerberos tests"; CFLAGS=-O0 $(PIP) 'ottla[gssapi]' && touch $@ \
		|| echo "The extra gssapi could not be built: tests of Kerberos are skipped."; fi

$(VENV)/.bench: $(VENV)/.base
	@echo "Installing the requirements of the benchmarks"
	@$(PIP) 'ottla[bench]'
	@touch $@

$(VENV)/.check: $(VENV)/.base
	@echo "Installing the linters and the type checker"
	@$(PIP) 'ottla[check]'
	@touch $@

# Without the packages of its own command: one of them has a licence that NOTICE does not name.
$(VENV)/.mutants: $(VENV)/.test
	@echo "Installing the operators of cosmic-ray"
	@$(PIP) --no-deps cosmic-ray attrs parso stevedore
	@touch $@

$(VENV)/.docs: $(VENV)/.base
	@echo "Installing the site generator"
	@$(PIP) 'ottla[docs]'
	@touch $@

demo: $(VENV)/.pipeline
	$(BIN)/ottla pipeline demo $(if $(INPUT),--input "$(INPUT)") $(ARGS)

unit: $(VENV)/.test
	$(RUN) $(UNIT) $(ARGS)

test: $(VENV)/.test $(if $(call tested,pipeline),$(VENV)/.pipeline) $(if $(call tested,bench),$(VENV)/.bench) $(if $(call tested,cluster),$(VENV)/.kerberos)
	@$(if $(NAMED),:,$(SELECT) short tests > $(VENV)/tests.txt)
	$(RUN) $(if $(NAMED),,@$(VENV)/tests.txt) $(ARGS)

test-all: $(VENV)/.test $(VENV)/.pipeline $(VENV)/.bench $(VENV)/.kerberos $(HELM) $(KUBECONFORM) $(OPENAPI)
	OTTLA_TESTS=all $(RUN) tests $(ARGS)

test-changed: $(VENV)/.test $(VENV)/.pipeline $(VENV)/.bench $(VENV)/.kerberos
	$(SELECT) rest tests --base "$(BASE)" --limit $(LIMIT) > $(VENV)/tests.txt
	@if grep -q . $(VENV)/tests.txt; then $(RUN) @$(VENV)/tests.txt $(ARGS); else echo "No further test depends on the change."; fi

check: $(VENV)/.check licenses
	$(BIN)/ruff format --check --no-cache
	$(BIN)/ruff check --no-cache
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports --no-cache # for simulation/, which is not installed
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/generate_cli.py --check
	$(BIN)/python docs/generate_evidence.py --check
	$(BIN)/python docs/generate_limits.py --check
	$(BIN)/python docs/generate_llms.py --check

licenses: $(VENV)/.check
	@$(BIN)/pip-licenses > $(VENV)/licenses.txt && echo "$$(($$(wc -l < $(VENV)/licenses.txt) - 1)) licences are allowed or named in NOTICE"

chart: $(VENV)/.test $(HELM) $(KUBECONFORM) $(OPENAPI)
	$(BIN)/pytest tests/app/test_chart_schemas.py tests/app/test_deploy.py -k 'chart or Chart' -rs $(ARGS)

format: $(VENV)/.check
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: $(VENV)/.base
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/generate_cli.py
	$(BIN)/python docs/generate_evidence.py
	$(BIN)/python docs/generate_limits.py
	$(BIN)/python docs/generate_llms.py

docs-site: $(VENV)/.docs
	$(BIN)/python docs/build_site.py

sim: $(VENV)/.base
	$(BIN)/python -m simulation --workload $(WORKLOAD) --seed $(SEED) $(ARGS)

sim-many: $(VENV)/.base
	$(BIN)/python -m simulation --workload $(WORKLOAD) --seed $(SEED) --many $(N) $(ARGS)

model: $(VENV)/.base
	$(BIN)/python -m simulation --model $(DEPTH) $(ARGS)

chaos: $(VENV)/.test $(if $(filter zookeeper,$(COORDINATION)),$(ZOOKEEPER))
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) --seed $(SEED) --brokers $(BROKERS) --security $(SECURITY) --coordination $(COORDINATION) $(ARGS)

exactly-once: $(VENV)/.test
	OTTLA_EXACTLY_ONCE_KILLS=$(KILLS) $(TRIAL) tests/faults/test_exactly_once.py -k kills $(ARGS)

cleaner-kills: $(VENV)/.test
	OTTLA_CLEANER_KILLS=$(KILLS) OTTLA_CLEANER_SEED=$(SEED) $(TRIAL) tests/faults/test_cleaner_kills.py $(ARGS)

mirror-kills: $(VENV)/.test
	OTTLA_MIRROR_KILLS=$(KILLS) OTTLA_MIRROR_RECORDS=$(RECORDS) OTTLA_MIRROR_PARTITIONS=24 OTTLA_MIRROR_SEED=$(SEED) $(TRIAL) tests/faults/test_mirror_kills.py $(ARGS)

legacy-churn: $(VENV)/.test
	OTTLA_LEGACY_SECONDS=$(CHURN) OTTLA_LEGACY_SEED=$(SEED) $(TRIAL) compat/java/test_legacy_churn.py $(ARGS)

damage: $(VENV)/.test
	OTTLA_DAMAGES=$(DAMAGES) OTTLA_DAMAGES_SEED=$(SEED) $(TRIAL) tests/cluster/test_damage.py $(ARGS)

siege: $(VENV)/.test
	OTTLA_SIEGE_SECONDS=$(SECONDS) OTTLA_SIEGE_HANDSHAKES=$(HANDSHAKES) $(TRIAL) tests/faults/test_siege.py $(ARGS)

mutants: $(VENV)/.mutants $(VENV)/.pipeline
	$(BIN)/pytest -q tests/suite/mutant_operators.py
	nice $(BIN)/python -m tests.suite.mutants $(ARGS)

exactly-once-stream: $(VENV)/.test $(VENV)/.pipeline
	OTTLA_SINK_KILLS=$(KILLS) OTTLA_SINK_SEED=$(SEED) $(TRIAL) tests/pipeline/test_sink_kills.py $(ARGS)

exactly-once-load: $(VENV)/.test $(VENV)/.pipeline
	OTTLA_TRIAL_KILLS=$(KILLS) OTTLA_TRIAL_MINUTES=$(MINUTES) OTTLA_TRIAL_JOB=$(JOB) OTTLA_TRIAL_FORMAT=$(FORMAT) OTTLA_TRIAL_SEED=$(SEED) $(TRIAL) tests/pipeline/test_random_kills.py $(ARGS)

exactly-once-topic: $(VENV)/.test $(VENV)/.pipeline
	OTTLA_TRIAL_KILLS=$(KILLS) OTTLA_TRIAL_MINUTES=$(MINUTES) OTTLA_TRIAL_JOB=stream OTTLA_TRIAL_FORMAT=topic OTTLA_TRIAL_SEED=$(SEED) $(TRIAL) tests/pipeline/test_random_kills.py tests/pipeline/stream/test_kills.py $(ARGS)

page-views: $(VENV)/.test $(VENV)/.pipeline
	$(BIN)/python -m tests.pipeline.page_views --views $(VIEWS) $(ARGS)

compat: $(VENV)/.test $(if $(filter --ignore=compat/java,$(ARGS)),,$(if $(filter short @% compat compat/java%,$(FAMILIES)),$(VENV)/.kerberos))
	@$(if $(filter short,$(FAMILIES)),$(SELECT) short compat > $(VENV)/compat.txt,:)
	$(BIN)/pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(FAMILIES:short=@$(VENV)/compat.txt) -rs $(ARGS)

kafka-suites: $(VENV)/.test
	$(BIN)/python compat/kafka_suites.py $(ARGS)

$(KAFKA) $(ZOOKEEPER) .cache/compat/java-spark/pom.xml: .cache/compat/java-%/pom.xml: compat/java/%.xml
	@command -v mvn > /dev/null || echo "Without Maven what $< names is not there."
	-@command -v mvn > /dev/null && mvn -q -B -f $< dependency:copy-dependencies -DoutputDirectory=$(abspath $(@D)) && cp $< $@

bench bench-subset bench-quick: $(VENV)/.bench $(KAFKA)
	$(BIN)/python bench run --profile $(or $(patsubst bench-%,%,$(filter-out bench,$@)),full) $(ARGS)

.cache/compat/spark/requirements.txt: compat/spark/requirements.txt | $(BIN)/python
	-@$(BIN)/python -m venv $(@D) && $(@D)/bin/pip --disable-pip-version-check install -q -r $< && cp $< $@

bench-pipeline: $(VENV)/.bench $(VENV)/.pipeline $(CONNECTOR)
	$(BIN)/python bench/pipeline.py $(ARGS)

bench-micro-batch: $(VENV)/.bench $(VENV)/.pipeline $(CONNECTOR)
	$(BIN)/python bench/micro_batch.py $(ARGS)

bench-cleaner: $(VENV)/.bench $(KAFKA)
	$(BIN)/python bench/cleaner.py $(ARGS)

bench-mirror: $(VENV)/.bench $(KAFKA)
	$(BIN)/python bench/mirror.py $(ARGS)

bench-size: $(VENV)/.bench $(KAFKA)
	$(BIN)/python bench/size.py $(ARGS)

bench-compare: $(VENV)/.bench
	$(BIN)/python bench compare $(BASE) $(ARGS)

# Compiled here; tests of the chart are skipped without Helm.
$(HELM):
	-@command -v go > /dev/null && GOBIN=$(abspath $(@D)) go install helm.sh/helm/v3/cmd/helm@v3.22.0

$(KUBECONFORM):
	-@command -v go > /dev/null && GOBIN=$(abspath $(@D)) go install github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0

$(OPENAPI):
	-@command -v go > /dev/null && mkdir -p $(@D) && cp -r --no-preserve=mode "$$(go mod download -json k8s.io/kubectl@v0.37.0 \
		| sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/testdata/openapi/v3" $@

# In an environment of its own: nothing of it is installed with Ottla, and NOTICE does not name its licences.
.cache/release/requirements.txt: release/requirements.txt | $(BIN)/python
	@echo "Installing the tools of a release"
	@$(BIN)/python -m venv $(@D) && $(@D)/bin/pip --disable-pip-version-check install -q -r $< && cp $< $@

release: .cache/release/requirements.txt
	.cache/release/bin/python -m release $(ARGS)

deb: .cache/release/requirements.txt
	.cache/release/bin/python -m release --debian $(ARGS)

cluster: $(VENV)/.base
	$(BIN)/ottla start --brokers 3 --data-dir ./ottla-cluster $(ARGS)

clean:
	rm -rf .venv .venv-* .cache build dist src/*.egg-info src/ottla/api/_messages.c src/ottla/protocol/_hot.c src/ottla/record/_batch.c src/ottla/record/_keys.c src/ottla/search/_byte_search.c src/ottla/api/*.so src/ottla/protocol/*.so src/ottla/record/*.so src/ottla/search/*.so
