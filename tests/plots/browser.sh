#!/usr/bin/env bash
# tests/plots/browser.sh: chromium, its driver and selenium (Debian's, 400 MB), with which tests/plots/browser.py drives
# the pages of report_browser_test.py and tests/site.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
packages=(chromium chromium-driver python3-selenium)
(deps) || say "SKIPPED: ${packages[*]} could not be installed"
