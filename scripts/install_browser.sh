#!/usr/bin/env bash
# Install a browser for the tests of the page (tests/browser); does nothing where there is one.
#   scripts/install_browser.sh [PYTHON]
# Root on Debian or Ubuntu gets the distribution's Chromium, everybody else the one that Playwright downloads.
set -euo pipefail
python=${1:-python3}

for name in "${CATCHLINE_CHROMIUM:-}" chromium chromium-browser google-chrome; do
  if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1; then
    echo "There is a browser: $(command -v "$name")"
    exit 0
  fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  # Ubuntu's chromium is a wrapper around a snap; it is used only if it runs.
  if { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; } \
    >"$log" 2>&1 && chromium --version >/dev/null 2>&1; then
    echo "Installed $(chromium --version 2>/dev/null)"
    exit 0
  fi
  tail -n 3 "$log" >&2
fi
exec "$python" -m playwright install chromium
