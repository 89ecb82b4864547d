#!/bin/bash
# Run by systemd in a clean root with the package installed (test_package.py): the service as an operator meets it.
# Writes a line for each check to /results: "ok NAME" or "FAILED NAME: what was seen".
exec >/results 2>/errors
url=http://127.0.0.1:8080

is() {  # NAME EXPECTED SEEN
  if [ "$2" = "$3" ]; then echo "ok $1"; else echo "FAILED $1: '$3' instead of '$2'"; fi
}
has() {  # NAME PART TEXT
  if [[ $3 == *"$2"* ]]; then echo "ok $1"; else echo "FAILED $1: no '$2' in '${3:0:300}'"; fi
}
property() { systemctl show -P "$1" thermocline; }
until_true() {  # SECONDS COMMAND ...
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}
chat() {  # MAX_TOKENS [CURL OPTIONS]
  local tokens=$1
  shift
  curl -sS "$@" $url/v1/chat/completions -H 'content-type: application/json' \
    -d '{"messages": [{"role": "user", "content": "Tell me a story about an owl."}], "max_tokens": '"$tokens"', "temperature": 0}'
}
not_active() { [ "$(property ActiveState)" != active ]; }
inactive() { [ "$(property ActiveState)" = inactive ]; }
active() { [ "$(property ActiveState)" = active ]; }
restarted() { [ "$(property NRestarts)" -gt "$1" ] && [ "$(property ActiveState)" = active ]; }

has "systemd runs here" running,degraded, "running,degraded,$(systemctl is-system-running)"
until_true 120 systemctl -q is-active thermocline
is "the package enabled and started the service" active "$(property ActiveState)"
has "STATUS= says what it serves" "serving tidepool" "$(property StatusText)"
has "it answers" '"finish_reason":"length"' "$(chat 8)"
user=$(stat -c %u "/proc/$(property MainPID)")
is "its user is a dynamic one ($user)" yes "$([ "$user" -ge 61184 ] && [ "$user" -le 65519 ] && echo yes)"
is "its state has a folder of its own" "$user" "$(stat -c %u /var/lib/private/thermocline)"
is "no core files" 0 "$(property LimitCORE)"

systemctl reload thermocline
is "reload" 0 $?
until_true 60 active  # systemd hears of the reload's end by a message
is "reload keeps the process" active "$(property ActiveState)"
sed -i 's/^  port: 8080/  port: 99999/' /etc/thermocline/thermocline.yaml
systemctl reload thermocline
has "a reload with an error keeps it serving" '"finish_reason"' "$(chat 2)"
has "and the journal says why" "99999" "$(journalctl -u thermocline --no-pager)"
sed -i 's/^  port: 99999/  port: 8080/' /etc/thermocline/thermocline.yaml

# The watchdog: a stopped process feeds nothing.
mkdir -p /run/systemd/system/thermocline.service.d
printf '[Service]\nWatchdogSec=3\nRestartSec=100ms\n' >/run/systemd/system/thermocline.service.d/test.conf
systemctl daemon-reload
systemctl restart thermocline
is "restart" active "$(property ActiveState)"
kill -STOP "$(property MainPID)"
until_true 120 restarted 0
has "the watchdog restarts a stuck daemon" "Watchdog timeout" "$(journalctl -u thermocline --no-pager)"
has "which then answers" '"finish_reason"' "$(chat 2)"

# SIGKILL: on-failure.
before=$(property NRestarts)
kill -KILL "$(property MainPID)"
until_true 120 restarted "$before"
has "a killed daemon comes back" '"finish_reason"' "$(chat 2)"

# A stop drains: the running answer ends as it should.
systemctl restart thermocline
curl -sN $url/v1/completions -H 'content-type: application/json' -o /stream \
  -d '{"prompt": "Once upon a time", "max_tokens": 100000, "ignore_eos": true, "stream": true, "temperature": 0, "stream_options": {"include_usage": true}}' &
stream=$!
until_true 60 grep -q '"text"' /stream
systemctl stop --no-block thermocline
until_true 60 not_active
wait $stream
has "a stop lets the running answer end" "data: [DONE]" "$(tail -c 200 /stream)"
until_true 60 inactive
is "a drained daemon ends without an error" success "$(property Result)"

# A bad configuration is not tried again and again.
printf '[Service]\nExecStart=\nExecStart=/usr/bin/thermoclined --set server.prot=1\n' >/run/systemd/system/thermocline.service.d/bad.conf
systemctl daemon-reload
systemctl reset-failed thermocline 2>/dev/null
systemctl start thermocline
sleep 1
is "a bad configuration: exit status" 78 "$(property ExecMainStatus)"
is "a bad configuration: no restarts" 0 "$(property NRestarts)"
rm /run/systemd/system/thermocline.service.d/bad.conf
systemctl daemon-reload
systemctl reset-failed thermocline

# The socket unit: clients wait while the daemon is away.
systemctl stop thermocline
systemctl start thermocline.socket
is "the socket listens, the daemon sleeps" inactive "$(property ActiveState)"
has "the first client starts the daemon" '"finish_reason"' "$(chat 2 --retry 30 --retry-delay 1)"
systemctl restart thermocline &
has "no client is refused a connection while it restarts" '"finish_reason"' "$(chat 2 --retry 30 --retry-delay 1)"
wait $!
systemctl stop thermocline.socket thermocline
systemctl -q enable thermocline.socket
systemctl start thermocline

for unit in /lib/systemd/system/thermocline.service; do
  is "systemd-analyze verify" "" "$(systemd-analyze verify "$unit" 2>&1)"
  exposure=$(systemd-analyze security --no-pager thermocline | sed -nE 's/.*Overall exposure level[^:]*: ([0-9.]+).*/\1/p')
  is "exposure ($exposure) is at most 2.5" yes "$(awk -v x="$exposure" 'BEGIN { print (x != "" && x <= 2.5) ? "yes" : "no" }')"
  for drop_in in cuda jetson; do
    cp /usr/share/doc/thermocline/examples/systemd/$drop_in.conf /run/systemd/system/thermocline.service.d/gpu.conf
    systemctl daemon-reload
    exposure=$(systemd-analyze security --no-pager thermocline | sed -nE 's/.*Overall exposure level[^:]*: ([0-9.]+).*/\1/p')
    is "exposure with $drop_in.conf ($exposure) is at most 4" yes "$(awk -v x="$exposure" 'BEGIN { print (x != "" && x <= 4) ? "yes" : "no" }')"
    rm /run/systemd/system/thermocline.service.d/gpu.conf
  done
done
rm -r /run/systemd/system/thermocline.service.d
systemctl daemon-reload
systemctl restart thermocline

# An upgrade keeps what the operator wrote and restarts the service.
echo '# by the operator' >>/etc/thermocline/thermocline.yaml
before=$(property MainPID)
dpkg --force-confold -i /root/newer.deb >/dev/null
is "upgraded" "$(dpkg-deb -f /root/newer.deb Version)" "$(dpkg-query -W -f '${Version}' thermocline)"
is "an upgrade keeps the configuration" "# by the operator" "$(tail -n 1 /etc/thermocline/thermocline.yaml)"
is "an upgrade restarts the service" active "$(property ActiveState)"
is "as another process" yes "$([ "$(property MainPID)" != "$before" ] && echo yes)"

# Removed, it keeps the configuration; purged, nothing.
touch /var/lib/private/thermocline/a-bundle
dpkg -r thermocline >/dev/null
is "removed: no process" "" "$(pgrep thermoclined)"
is "removed: the configuration stays" yes "$([ -e /etc/thermocline/thermocline.yaml ] && echo yes)"
dpkg -P thermocline >/dev/null
is "purged: no trace" "" "$(find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /var/log -o -path /var/lib/dpkg/info \) -prune -o -name '*thermocline*' -print | head -n 5)"
is "purged: dpkg knows nothing" "" "$(ls /var/lib/dpkg/info/thermocline* 2>/dev/null)"
echo end
sync
systemctl poweroff
