# cpack makes a Debian package of the program's part, for whatever the build was for.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The kvbench developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "errors of KV-cache compression on real attention")
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "Replays queries, keys and values dumped from language models
through KV-cache compression algorithms. Built for ${KVBENCH_ARCH}: x86-64-v3 needs a processor with
AVX2 and FMA.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME kvbench)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS
  "node-d3, python3, python3-h5py, python3-matplotlib, python3-numpy, python3-pandas, python3-scipy, python3-sklearn")
include(CPack)
