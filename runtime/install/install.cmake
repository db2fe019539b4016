# `cmake --install build --prefix P`: the command, the library with its header, what pkg-config and CMake need
# to find it, and the CPU plugin in lib/ttt, where both command and library look for it.
include(CMakePackageConfigHelpers)
set(TTT_INSTALL_PLUGINS "" CACHE STRING "Further plugins (libtpu.so, xla_cuda_plugin.so) to install beside the CPU's")

install(TARGETS ttt RUNTIME DESTINATION bin)
target_include_directories(ttt_library INTERFACE $<INSTALL_INTERFACE:include>)
install(TARGETS ttt_library EXPORT tttTargets LIBRARY DESTINATION lib)
install(FILES runtime/ttt.h DESTINATION include)
install(PROGRAMS ${ttt_cpu_plugin} ${TTT_INSTALL_PLUGINS} DESTINATION lib/ttt)

set(install_files ${CMAKE_CURRENT_LIST_DIR})
set(package_folder lib/cmake/ttt)
install(EXPORT tttTargets NAMESPACE ttt:: DESTINATION ${package_folder})
configure_package_config_file(${install_files}/tttConfig.cmake.in ${PROJECT_BINARY_DIR}/tttConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tttConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tttConfig.cmake ${PROJECT_BINARY_DIR}/tttConfigVersion.cmake
        DESTINATION ${package_folder})
configure_file(${install_files}/ttt.pc.in ${PROJECT_BINARY_DIR}/ttt.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ttt.pc DESTINATION lib/pkgconfig)
