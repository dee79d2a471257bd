# usage: go.sh NAME... : runs each helper's queue folder in a copy of the tree overlaid with its files
export PYTHONPATH=$PYTHONPATH:/tmp/wheels
export BASEPATH=$PYTHONPATH  # activate's, with the DSL
top=$OUT; here=$PWD
for n in "$@"; do
  rm -rf /tmp/w_$n; mkdir -p /tmp/w_$n $top/$n
  tar cf - --exclude=./.gpu --exclude=./.git --exclude=./_build . | tar xf - -C /tmp/w_$n
  [ -d .gpu/q/$n/tree ] && cp -rT .gpu/q/$n/tree /tmp/w_$n
  sed -i 's#PYTHONPATH=\$PWD#PYTHONPATH=$PWD:$BASEPATH#g' .gpu/q/$n/run.sh
  lim=$(head -3 .gpu/q/$n/run.sh | grep -o 'seconds: *[0-9]*' | grep -o '[0-9]*$'); lim=$(( ${lim:-60} + 15 ))
  s=$(date +%s)
  (cd /tmp/w_$n && export OUT=$top/$n PYTHONPATH=/tmp/w_$n:$PYTHONPATH && timeout $lim bash $here/.gpu/q/$n/run.sh > $OUT/log 2>&1); rc=$?
  echo "== $n rc $rc $(( $(date +%s) - s )) s"; tail -4 $top/$n/log
done
cd $top && for n in "$@"; do tar czf $n.tgz $n && rm -rf $n; done; ls -la $top
