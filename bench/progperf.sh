# progperf.sh: perf of sort and a python program under always
. "$(dirname "$0")/common.sh"
. "$here/programs_inputs.sh"
echo always > /sys/kernel/mm/transparent_hugepage/enabled
cleanup_also="echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
scale=1
mkdir -p $tmp/in
programs_prepare "$tmp/in" 160 0 20000
export OPENBLAS_NUM_THREADS=2 OMP_NUM_THREADS=2 PYTHONHASHSEED=0
cd $tmp/in
for n in $NAMES; do
 c=$(large_command $n)
 for r in ${ROUNDS:-1 2}; do
 for s in glibc ours; do
  "$bin/plain_measure" -w 1500M >/dev/null
  p=; [ $s = ours ] && p="LD_PRELOAD=$shim"
  if [ $r = 2 ]; then perf record -q -F 2000 -o /tmp/w/me/p.$n.$s env $p sh -c "$c" >/dev/null 2>&1
  else perf stat -e task-clock,page-faults,context-switches,dTLB-load-misses,iTLB-load-misses,cache-misses,instructions -o /tmp/w/me/s.$n.$s.$r env $p sh -c "$c" >/dev/null 2>&1; fi
 done; done
done
