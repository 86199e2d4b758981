#!/usr/bin/env bash
# tests/plots/browser.sh: Chromium's headless shell (Debian's, 90 MB), which tests/plots/report_browser_test.py and
# tests/site drive, if the machine has no browser (tests/plots/browser.py has the same names).
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
for program in chromium-headless-shell chromium chromium-browser google-chrome; do
  if command -v $program >/dev/null; then exit; fi
done
packages=(chromium-headless-shell)
(deps) || say "SKIPPED: chromium-headless-shell could not be installed"
