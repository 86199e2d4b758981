# The tier of every test: `quick` is what ./bootstrap.sh test runs, `full` is added by .ci/run on every
# change, `nightly` by .ci/nightly. A test that is not listed here is of the tier `full`.
set(kvbench_quick
  algorithms check compare conformance core dump inspection inspect_command json kernels metrics output
  replay results run sketch storage sweep verify
  golden golden_ids golden_methods golden_prompt_rows golden_softcap
  cli_bad_input cli_commands cli_kill cli_resume cli_run
  house readme)
set(kvbench_nightly
  cli_mutated_dump cli_mutated_results
  bench_sweeps check_bugs check_regression ways_in
  cuda cuda_device cuda_devices
  plots-report_browser release site slurm)

# Programs that the quick tier runs, and no others.
add_custom_target(quick-tests)
if(TARGET kvbench)
  add_dependencies(quick-tests kvbench)
endif()

# Labels the test NAME with its tier and with the words that follow.
function(kvbench_tier name)
  set(tier full)
  foreach(listed quick nightly)
    if(name IN_LIST kvbench_${listed})
      set(tier ${listed})
    endif()
  endforeach()
  set_tests_properties(${name} PROPERTIES LABELS "${tier};${ARGN}")
endfunction()

# Has TARGET built by `quick-tests` where the test NAME is of that tier.
function(kvbench_built_for name target)
  if(name IN_LIST kvbench_quick)
    add_dependencies(quick-tests ${target})
  endif()
endfunction()
