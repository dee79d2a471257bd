# seconds: 330
# probe 60 s, both tables of the benchmark with the mistakes 170 s, recording 90 s: each has its own limit below
t0=$(date +%s)
PROBE=.probe
N=8
( timeout 28 ncu --kernel-name regex:decode --section SourceCounters --section WarpStateStats --section MemoryWorkloadAnalysis --section MemoryWorkloadAnalysis_Tables --section SpeedOfLight -f -o /tmp/decode_ncu python3 -u $PROBE/counted.py > $OUT/ncu_log 2>&1; touch $OUT/prepared_ncu ) &
pids="$!"
i=0
while [ $i -lt $N ]; do
  timeout 55 python3 -u $PROBE/probe.py $i $((N+1)) $OUT > $OUT/log_$i 2>&1 &
  pids="$pids $!"
  i=$((i+1))
done
wait $pids
rm -f $OUT/gpu.lock $OUT/prepared_*
echo "probe $(( $(date +%s) - t0 )) s"
grep -h ROW $OUT/log_* | sort -s -k2,4; grep -hE "FAILED|DIFFERS|Error" $OUT/log_*
( timeout 10 ncu --import /tmp/decode_ncu.ncu-rep --page details > $OUT/ncu_details.txt 2>&1; timeout 10 ncu --import /tmp/decode_ncu.ncu-rep --page source --csv > $OUT/ncu_source.csv 2>&1 ) &
imports=$!
timeout -k 5 100 python3 -m cutetut bench 24_flash_decode > $OUT/bench.log 2>&1; echo "bench rc $? $(( $(date +%s) - t0 )) s"; tail -n 40 $OUT/bench.log
timeout -k 5 110 python3 -m cutetut bench 24_flash_decode --part pages > $OUT/bench_pages.log 2>&1; echo "bench pages rc $? $(( $(date +%s) - t0 )) s"; tail -n 60 $OUT/bench_pages.log
timeout -k 5 90 python3 -m cutetut record 24_flash_decode > $OUT/record.log 2>&1; echo "record rc $? $(( $(date +%s) - t0 )) s"; tail -n 15 $OUT/record.log
wait $imports
cp book/data/24_flash_decode*.json notebooks/24_flash_decode.ipynb $OUT/
echo "all $(( $(date +%s) - t0 )) s"
