#!/bin/bash
# Reads the metrics with a real node exporter and a real Prometheus: they show what the clients did, and each query of
# the dashboard has an answer. Usage: prometheus.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
what=prometheus
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
needs prometheus prometheus-node-exporter promtool jq
work=$(mktemp -d /tmp/gpuarb-prometheus-XXXXXX) || exit 1
shm=$(mktemp -d /dev/shm/gpuarb-test-XXXXXX) || exit 1
started=()
# shellcheck disable=SC2317,SC2329
finish() {
	[ "${#started[@]}" = 0 ] || { kill "${started[@]}"; wait "${started[@]}"; } 2>/dev/null
	rm -rf "$work" "$shm"
}
trap finish EXIT
mkdir "$work/textfile" "$work/data"
make --no-print-directory -s BUILD="$build" DESTDIR= PREFIX="$work/usr" SYSCONFDIR="$work/etc" install || exit 1
doc=$work/usr/share/gpuarb/prometheus

# The files that users copy.
cp "$doc/gpuarb.rules.yml" "$work/"
promtool check rules "$work/gpuarb.rules.yml" >"$work/said" 2>&1 || say "$(cat "$work/said")"
exporter=$(free_port)
server=$(free_port)
sed -e "s/localhost:9100/127.0.0.1:$exporter/" -e 's/15s/1s/' "$doc/prometheus.yml" >"$work/prometheus.yml"
promtool check config "$work/prometheus.yml" >"$work/said" 2>&1 || say "$(cat "$work/said")"

# Two accounts on the simulated GPU; one is throttled all the time, the other is killed.
export GPUSIM_DIR="$shm/gpu" GPUARB_DIR="$shm/arb" GPUARB_CONF=/dev/null GPUSIM_MODE=share
client() { # ACCOUNT LIMIT MEMORY
	LD_LIBRARY_PATH="$build/sim" GPUARB_ACCOUNT=$1 GPUARB_CORE_LIMIT=$2 GPUARB_MEM_LIMIT=$3 \
		LD_PRELOAD="$build/libgpuarb-preload.so" "$build/simload" --kernel-us=50 --duration=300 --memory=64 >/dev/null &
	started+=($!)
}
client web 30 1Gi
client batch 20 512Mi
client doomed 10 512Mi
doomed=$!
sleep 2
{ kill -KILL $doomed; wait $doomed; } 2>/dev/null
write() { "$work/usr/lib/gpuarb/export" "$work/textfile/gpuarb.prom"; }
write || say "the export failed"
[ "$(ls "$work/textfile")" = gpuarb.prom ] || say "the export left $(ls "$work/textfile")"
promtool check metrics <"$work/textfile/gpuarb.prom" >"$work/said" 2>&1 || say "promtool check metrics: $(cat "$work/said")"
[ -s "$work/said" ] && say "promtool check metrics: $(cat "$work/said")"

prometheus-node-exporter --collector.disable-defaults --collector.textfile --collector.textfile.directory="$work/textfile" \
	--web.listen-address="127.0.0.1:$exporter" >"$work/exporter.log" 2>&1 &
started+=($!)
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" --web.listen-address="127.0.0.1:$server" \
	>"$work/prometheus.log" 2>&1 &
started+=($!)
ask() { promtool query instant "http://127.0.0.1:$server" "$1" 2>/dev/null; }
# value QUERY: prints the first number of the answer
value() { ask "$1" | sed -nE 's/.*=> ([-+0-9.e]+|NaN) @.*/\1/p' | head -n 1; }
scraped() { [ -n "$(value 'gpuarb_gpu_info')" ]; }
until_true 60 scraped || {
	tail -n 3 "$work/exporter.log" "$work/prometheus.log" >&2
	say "Prometheus has nothing"
	exit 1
}
# Writes as the timer does, until the end, so that late queries still find fresh data.
while sleep 1 && write; do :; done &
started+=($!)
sleep 12

is() { # QUERY VALUE
	[ "$(value "$1")" = "$2" ] || say "$1 is $(value "$1"), not $2"
}
is 'gpuarb_account_limit_ratio{account="web"}' 0.3
is 'gpuarb_account_quota_ratio{account="batch"}' 0.2
is 'gpuarb_account_memory_limit_bytes{account="web"}' 1073741824
is 'gpuarb_account_memory_used_bytes{account="web"} >= bool 67108864' 1
is 'gpuarb_gpu_conservation_error_seconds' 0
is 'gpuarb_gpu_high_pressure <= bool 1' 1
is 'gpuarb_gpu_waiting_processes' 0
is 'gpuarb_gpu_reclaimed_slots_total' 1
is 'sum(gpuarb_process_bypasses_total)' 0
is 'node_textfile_scrape_error' 0
# Bills do not exceed limits and add up to the busy time.
is 'rate(gpuarb_account_billed_seconds_total{account="web"}[10s]) < bool 0.36' 1
is 'rate(gpuarb_account_billed_seconds_total{account="web"}[10s]) > bool 0.15' 1
is 'rate(gpuarb_account_billed_seconds_total{account="batch"}[10s]) < bool 0.26' 1
is 'sum(gpuarb_account_billed_seconds_total) - sum(gpuarb_gpu_busy_seconds_total) < bool 1' 1
is 'sum(rate(gpuarb_process_throttled_seconds_total{account="web"}[10s])) > bool 0.1' 1
is 'sum(rate(gpuarb_process_calls_total{class="launches"}[10s])) > bool 100' 1

# Asks each query of the dashboard as Grafana would. Panels have different titles, and legends name the GPU.
dashboard=$doc/grafana-dashboard.json
twice=$(jq -c '[.panels[].title] | group_by(.) | map(select(length > 1)[0])' "$dashboard")
[ "$twice" = "[]" ] || say "panels of the dashboard have one name: $twice"
nameless=$(jq -c '[.panels[] | select(.type != "table") | .targets[].legendFormat | select(contains("{{gpu}}") | not)]' "$dashboard")
[ "$nameless" = "[]" ] || say "legends of the dashboard do not name the GPU: $nameless"
for metric in gpuarb_gpu_memory_promised_bytes gpuarb_gpu_memory_physical_bytes gpuarb_process_refused_total; do
	grep -q "$metric" "$dashboard" || say "the dashboard does not show $metric"
done
queries=0
while IFS= read -r query; do
	queries=$((queries + 1))
	query=${query//\$gpu/.*}
	query=${query//\$account/.*}
	# Utilisation is known only while a process samples it.
	[ -n "$(value "${query//\[1m\]/[10s]}")" ] || [[ $query = gpuarb_gpu_usage_ratio* ]] || say "the dashboard asks in vain: $query"
done < <(jq -r '.panels[].targets[].expr' "$dashboard")
[ "$queries" -ge 20 ] || say "the dashboard has $queries queries only"
alerts=$(ask 'ALERTS{alertname=~"Gpuarb.*",alertstate="firing"}')
[ -z "$alerts" ] || say "alerts: $alerts"

[ "$bad" = 0 ] || exit 1
echo "prometheus: $(prometheus --version 2>&1 | sed -n '1s/ (.*//p'), metrics clean, scraped, $queries queries of the dashboard answered"
