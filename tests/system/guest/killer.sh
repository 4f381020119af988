# Runs in the guest, in the background: kills the next engine within AT_MOST_MS of its first sign of life.
# bash killer.sh AT_MOST_MS
until server=$(pgrep -o -f 'dualblade --serve'); do sleep 0.05; done
until engine=$(pgrep -n -P "$server"); do sleep 0.05; done
sleep "$(awk -v most="$1" -v seed="$RANDOM" 'BEGIN { srand(seed); print rand() * most / 1000 }')"
kill -9 "$engine"
