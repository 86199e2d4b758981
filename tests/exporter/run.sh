#!/usr/bin/env bash
# tests/exporter/run.sh [OPTIONS]: tests of data/*.py with torch in .venv-model (6 GB); OPTIONS are unittest's.
# With another transformers than the pinned one: KVBENCH_TRANSFORMERS=5.24.0, or newest.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
build
environment .venv-model model && install_package .venv-model || { say "SKIPPED: the exporter's tests" && exit; }
venv=.venv-model version=${KVBENCH_TRANSFORMERS:-}
if [[ -n $version ]]; then
  venv=.venv-transformers-$version
  if [[ ! -f $venv/made || $version == newest ]]; then
    # The model's packages come behind its own, so that only what another version asks for is installed.
    .venv-model/bin/python -m venv --clear "$venv"
    packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
    packages .venv-model >"$(packages "$venv")/model.pth"
    wanted=transformers$([[ $version == newest ]] || echo "==$version")
    "$venv/bin/python" -m pip install --quiet --no-cache-dir --upgrade "$wanted" >&2 ||
      die "pip did not install $wanted"
    touch "$venv/made"
  fi
fi
say "with transformers $("$venv/bin/python" -c 'import transformers; print(transformers.__version__)' 2>/dev/null)"
data_tests exporter "$venv" "$@"
