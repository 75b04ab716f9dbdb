# gnuplot -e 'data="bench/latency.dat"; picture="bench/latency.svg"' bench/latency.gp
# Each point is a request of 0.5 ms; from 2 s to 6 s a training job with kernels of 20 us runs beside them. Left without an
# arbiter, right with gpuarb and a higher priority. A background of its own, as in shares.gp.
set terminal svg size 960,300 font "sans-serif,13" background rgb "white"
set output picture
set multiplot layout 1,2 margins 0.07,0.985,0.19,0.86 spacing 0.05
set xrange [0:8]
set yrange [0:2.5]
set xtics 2
set ytics 0.5
set grid ytics lc rgb "#dddddd" lt 1
set border 3 lc rgb "#444444"
set tics nomirror out scale 0.5
set xlabel "seconds" offset 0,0.7 tc rgb "#222222"
unset key
set arrow 1 from 2,0 to 2,2.3 nohead dt 2 lc rgb "#888888"
set arrow 2 from 6,0 to 6,2.3 nohead dt 2 lc rgb "#888888"
set label 1 "training runs" at 2.1,2.38 font ",11" tc rgb "#444444"
points(way) = sprintf("< awk '$1 == \"%s\" && NR %% 2 {print $2, $3}' %s", way, data)
set title "without an arbiter" font ",15" tc rgb "#222222"
set ylabel "ms that a request took" offset 1.5,0 tc rgb "#222222"
plot points("bare") u 1:2 w p pt 7 ps 0.25 lc rgb "#b84a00"
set title "with gpuarb, inference at priority 90" font ",15" tc rgb "#222222"
unset ylabel
plot points("concurrent") u 1:2 w p pt 7 ps 0.25 lc rgb "#1a65a0"
unset multiplot
