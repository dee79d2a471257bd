# seconds: 110
# Rival plans beside torch, 18 processes; one at a time has the GPU. To use it: this file as ../run.sh, probe.py as ../tree/.probe/probe.py.
pids=""
for i in $(seq 0 17); do
  timeout 105 python3 -u .probe/probe.py $i $OUT > $OUT/log_$i 2>&1 &
  pids="$pids $!"
done
wait $pids
rm -f $OUT/gpu.lock
tail -n 70 $OUT/log_*
