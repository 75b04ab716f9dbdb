#!/bin/sh
# The accuracy of limits in virtual time (test/world): the figures in the README. BUILD: where it was built.
set -u
world=${BUILD:-build}/world
echo "# limits in virtual time: points that the worst client of each case is off"
"$world" --cases all --seconds "${SECONDS_EACH:-20}" --brief && "$world" --cases all --seconds "${SECONDS_EACH:-20}" --robbed --brief
