# seconds: 570
export FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1 FLASH_ATTENTION_CUTE_DSL_CACHE_DIR=/tmp/facache_ping TORCHINDUCTOR_COMPILE_THREADS=4
t0=$(date +%s); now() { echo "== $1: $(( $(date +%s) - t0 )) s"; }
touch $OUT/.before
timeout -k 3 385 python3 bench_all.py > $OUT/bench.txt 2>&1
now "bench rc $?"; tail -c 2500 $OUT/bench.txt; pkill -9 -f 'cutetut bench'
mkdir -p $OUT/data; find book/data -newer $OUT/.before \( -name '21_fa_pingpong*.json' -o -name '16_rows*.json' \) -exec cp {} $OUT/data/ \;
tar czf $OUT/data.tgz -C $OUT data; ls $OUT/data
# the tests and the probes compile beside the recording; nothing is timed before both have ended
export GO=$OUT/.go
tests="tests/chapters/test_21_any_input.py"
pids=""; n=0
for k in "ragged" "float16 or test_lengths or bottom_right" "beyond or nor_where" "windows or refused" "packed" "scale or sizes or numbers or whenever or strides or nan_and or nan_of or window_with"; do
  n=$((n+1)); timeout -k 3 100 python3 -m pytest --gpu $tests -q -x -p no:cacheprovider -k "$k" > $OUT/test_$n.txt 2>&1 & pids="$pids $!"
done
timeout -k 3 150 python3 -m pytest --gpu $tests -q -p no:cacheprovider -rs -k as_near > $OUT/test_libraries.txt 2>&1 & pids="$pids $!"
probes=""
for p in d256 d64 d96 d192 d256c ends; do timeout -k 3 190 python3 probe.py $p > $OUT/probe_$p.txt 2>&1 & probes="$probes $!"; done
timeout -s INT -k 5 125 python3 -m cutetut record --jobs 7 21_fa_pingpong 16_rows 22_fa_fp8 > $OUT/record.txt 2>&1
now "record rc $?"; tail -20 $OUT/record.txt
tar czf $OUT/notebooks.tgz notebooks/16_rows.ipynb notebooks/21_fa_pingpong.ipynb notebooks/22_fa_fp8.ipynb
wait $pids; now tests; for i in 1 2 3 4 5 6 libraries; do echo "-- tests $i"; tail -3 $OUT/test_$i.txt; done
touch $GO; wait $probes; now probes; cat $OUT/probe_*.txt
rm -rf $OUT/data $OUT/.go $OUT/.go.turn $OUT/.before
