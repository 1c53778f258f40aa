#!/usr/bin/env bash
# Install Chromium for the browser tests by the system's package manager where it may; never fails.
# Browser tests skip where none of these names is on PATH: tests/helpers/browser.py has the same list.
set -uo pipefail

has_browser() {
  command -v chromium || command -v chromium-browser || command -v google-chrome || command -v google-chrome-stable
}

skip() {
  echo "chromium: browser tests will be skipped: $1"
  exit 0
}

has_browser >/dev/null && exit 0
command -v apt-get >/dev/null || skip "no browser is installed, and there is no apt-get to install Chromium"
[ "$(id -u)" = 0 ] || skip "no browser is installed, and only root may install Chromium (apt-get install chromium)"
export DEBIAN_FRONTEND=noninteractive
# A mirror that does not answer must not hold the tests up.
apt=(timeout 600 apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30)
"${apt[@]}" update >/dev/null 2>&1 || skip "apt-get update failed"
"${apt[@]}" install -y --no-install-recommends chromium >/dev/null 2>&1 || skip "apt-get install chromium failed"
has_browser >/dev/null || skip "the package chromium put no browser on PATH"
echo "chromium: installed for the browser tests"
