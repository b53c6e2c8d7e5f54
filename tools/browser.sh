#!/usr/bin/env bash
# Whether there is a browser for the tests of the page; with --install, as CI calls it, Debian's is installed if not.
set -euo pipefail
found() {
    test -n "${FEDPARETO_BROWSER:-}" || command -v chromium chromium-headless-shell chromium-browser google-chrome > /dev/null
}
if found; then
    exit 0
fi
if [ "${1:-}" = --install ] && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    apt-get update -qq || true  # Without a network the lists at hand may do.
    apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-dejavu-core > /dev/null ||
        apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null || true
    found && exit 0
fi
echo "no browser for the tests of the page: apt-get install chromium (or chromium-headless-shell) fonts-dejavu-core, or FEDPARETO_BROWSER=path of a Chromium" >&2
exit 1
